"""Training steps of DistributedDataParallel over Gloo with the fused AdamW.

step_ddp.py python-ddp|python-ddp-fp16|python-ddp-compiled MODEL STEPS
"""

import sys

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from meeting import gloo
from models import MODELS
from recorder import Series

WARM_UP = 3


def measure(variant, name, steps):
    torch.manual_seed(0)
    model = MODELS[name]()
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if variant == "python-ddp-fp16":
        parallel.register_comm_hook(None, fp16_compress_hook)
    if variant == "python-ddp-compiled":
        parallel.compile()
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4, fused=True)
    count = sum(parameter.numel() for parameter in model.parameters())
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
    series.write()


def main():
    variant, name, steps = sys.argv[1:]
    with gloo():
        measure(variant, name, int(steps))


if __name__ == "__main__":
    main()
