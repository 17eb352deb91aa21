"""torch.distributed.checkpoint saves and loads the bytes of snapshot.cpp in the same folder.

Like ours it brings the files to the disk; it makes and checks no digests.
"""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from recorder import Series

TENSORS, SIDE, REPETITIONS = 42, 1024, 5
PEER = "python-dcp"


def make_state():
    return {f"layer{i}.weight": torch.randn(SIDE, SIDE) for i in range(TENSORS)}


def measure(folder):
    state = make_state()
    save, load, stall = (Series(f"{what} 176 MB", PEER) for what in ("save", "load", "stall"))
    for turn in range(REPETITIONS + 1):
        counted = (lambda call: call()) if turn > 0 else (lambda call: None)
        counted(save.begin)
        dcp.save(state, checkpoint_id=folder / "saved")
        counted(save.end)
        counted(load.begin)
        dcp.load(state, checkpoint_id=folder / "saved")
        counted(load.end)
        counted(stall.begin)
        pending = dcp.async_save(state, checkpoint_id=folder / "background")
        counted(stall.end)
        pending.result()
    for series in (save, load, stall):
        series.write()


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory(prefix="lockstep_bench_", dir="/tmp") as name:
        folder = pathlib.Path(name)
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            measure(folder)
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
