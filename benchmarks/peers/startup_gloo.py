"""The time from $LOCKSTEP_BENCH_BEGIN until torch.distributed over Gloo has all ranks."""

import os

import torch.distributed as dist

from meeting import gloo
from recorder import Series


def main():
    with gloo():
        series = Series("start", "python-gloo")
        series.begin_at(float(os.environ["LOCKSTEP_BENCH_BEGIN"]))
        dist.barrier()
        series.end()
        series.write()


if __name__ == "__main__":
    main()
