"""Joins the processes that harness/launch.py started to one Gloo group, through a rendezvous file."""

import contextlib
import os

import torch
import torch.distributed as dist


@contextlib.contextmanager
def gloo():
    """torch.distributed is initialised inside the block; yields the rank."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['LOCKSTEP_BENCH_MEETING']}",
                            rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    try:
        yield rank
    finally:
        dist.destroy_process_group()
