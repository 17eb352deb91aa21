"""Training steps of DistributedDataParallel, of fully_shard (FSDP2), or of DeepSpeed's ZeRO 2, over Gloo with the fused AdamW.

step_ddp.py python-ddp|python-ddp-fp16|python-ddp-compiled|python-fsdp2|python-deepspeed MODEL STEPS
"""

import os
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


def zero2(model):
    """DeepSpeed: optimizer states and gradients are sharded, in fp32."""
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=os.environ["RANK"])
    import deepspeed  # pylint: disable=import-outside-toplevel; optional
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)[0]


def updates(parallel):
    """What makes an update of a loss."""
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4, fused=True)

    def update(inputs, targets):
        optimizer.zero_grad()
        cross_entropy(parallel(inputs), targets).backward()
        optimizer.step()

    return update


def updates_of_engine(engine):
    def update(inputs, targets):
        engine.backward(cross_entropy(engine(inputs), targets))
        engine.step()

    return update


def measure(variant, name, steps):
    torch.manual_seed(0)
    forget_peak()
    before = resident("VmRSS")
    model = MODELS[name]()
    count = sum(parameter.numel() for parameter in model.parameters())
    if variant == "python-deepspeed":
        update = updates_of_engine(zero2(model))
    else:
        parallel = (sharded(model) if variant == "python-fsdp2" else
                    DistributedDataParallel(model, gradient_as_bucket_view=True))
        if variant == "python-ddp-fp16":
            parallel.register_comm_hook(None, fp16_compress_hook)
        if variant == "python-ddp-compiled":
            parallel.compile()
        update = updates(parallel)
    series = Series(name, variant, parameters=count)
    for step in range(WARM_UP + steps):
        inputs, targets = model.batch()
        if step >= WARM_UP:
            series.begin()
        update(inputs, targets)
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
