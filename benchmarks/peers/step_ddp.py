"""Training steps of DistributedDataParallel, or of fully_shard (FSDP2), over Gloo with the fused AdamW.

step_ddp.py python-ddp|python-ddp-fp16|python-ddp-compiled|python-fsdp2 MODEL STEPS
"""

import pathlib
import re
import sys

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from meeting import gloo
from models import MODELS, BasicBlock, TransformerLayer
from recorder import Series

WARM_UP = 3


def resident(key):
    """The figure of /proc/self/status in bytes: VmRSS, or VmHWM, the most since the last forget_peak()."""
    return int(re.search(rf"{key}:\s+(\d+)", pathlib.Path("/proc/self/status").read_text(encoding="ascii"))[1]) * 1024


def forget_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def sharded(model):
    """FSDP2: each layer gathers its weights before it runs, and frees them after."""
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for module in list(model.modules()):
        if isinstance(module, (TransformerLayer, BasicBlock)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def measure(variant, name, steps):
    torch.manual_seed(0)
    forget_peak()
    before = resident("VmRSS")
    model = MODELS[name]()
    count = sum(parameter.numel() for parameter in model.parameters())
    parallel = (sharded(model) if variant == "python-fsdp2" else
                DistributedDataParallel(model, gradient_as_bucket_view=True))
    if variant == "python-ddp-fp16":
        parallel.register_comm_hook(None, fp16_compress_hook)
    if variant == "python-ddp-compiled":
        parallel.compile()
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4, fused=True)
    series = Series(name, variant, parameters=count)
    for step in range(WARM_UP + steps):
        inputs, targets = model.batch()
        if step >= WARM_UP:
            series.begin()
        optimizer.zero_grad()
        cross_entropy(parallel(inputs), targets).backward()
        optimizer.step()
        if step >= WARM_UP:
            series.end()
    series.note("peak", resident("VmHWM") - before)
    series.write()


def main():
    variant, name, steps = sys.argv[1:]
    with gloo():
        measure(variant, name, int(steps))


if __name__ == "__main__":
    main()
