"""Joins the processes that harness/launch.py started as a pair to one Gloo group."""

import contextlib
import os

import torch
import torch.distributed as dist


@contextlib.contextmanager
def gloo():
    """Inside the block torch.distributed is up; yields this process's rank."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['LOCKSTEP_BENCH_MEETING']}",
                            rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    try:
        yield rank
    finally:
        dist.destroy_process_group()
