"""All-reduces of torch.distributed over Gloo; names, sizes and calls as in allreduce.cpp."""

import torch
import torch.distributed as dist

from meeting import gloo
from recorder import Series

SIZES = (("4KB", 4 << 10, 300), ("64KB", 64 << 10, 200), ("1MB", 1 << 20, 60),
         ("32MB", 32 << 20, 8))
TYPES = (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16))
WARM_UP = 3


def measure(rank, name, buffer, calls):
    series = Series(name, "gloo")
    ranks = dist.get_world_size()
    for call in range(WARM_UP + calls):
        base = 1 + call % 5
        expected = ranks * base + ranks * (ranks - 1) // 2
        buffer.fill_(base + rank)
        dist.barrier()
        if call >= WARM_UP:
            series.begin()
        dist.all_reduce(buffer)
        if call >= WARM_UP:
            series.end()
        if buffer[0].item() != expected or buffer[-1].item() != expected:
            raise RuntimeError(f"rank {rank}: {name}: the sum is {expected}, not {buffer[0]}")
    series.write()


def main():
    with gloo() as rank:
        for type_name, dtype in TYPES:
            for size_name, size, calls in SIZES:
                buffer = torch.empty(size // dtype.itemsize, dtype=dtype)
                measure(rank, f"{type_name} {size_name}", buffer, calls)


if __name__ == "__main__":
    main()
