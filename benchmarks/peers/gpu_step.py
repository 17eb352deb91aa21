"""Training steps in Python with autocast, GradScaler (fp16) and the fused AdamW.

gpu_step.py eager|compile|accelerate GROUPS STEPS (fp16|bf16 MODEL)..., on the device
LOCKSTEP_DEVICE: as gpu_step.cpp does.
"""

import os
import resource
import sys

import torch
from torch.nn.functional import cross_entropy

from models import MODELS
from recorder import Series

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


class Loop:
    def __init__(self, model, dtype, device):
        self.model, self.dtype, self.device = model, dtype, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)

    def step(self, inputs, targets):
        self.optimizer.zero_grad()
        with torch.autocast(self.device.type, self.dtype):
            loss = cross_entropy(self.model(inputs), targets)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Accelerated:
    def __init__(self, model, dtype, device):
        from accelerate import Accelerator
        self.accelerator = Accelerator(
            mixed_precision="fp16" if dtype == torch.float16 else "bf16",
            cpu=device.type == "cpu")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def step(self, inputs, targets):
        self.optimizer.zero_grad()
        with self.accelerator.autocast():
            loss = cross_entropy(self.model(inputs), targets)
        self.accelerator.backward(loss)
        self.optimizer.step()


def make_loop(variant, model, dtype, device):
    if variant == "accelerate":
        return Accelerated(model, dtype, device)
    if variant == "compile":
        model = torch.compile(model, backend="inductor" if device.type == "cuda" else "eager")
    return Loop(model, dtype, device)


def placed(thing, device):
    """A module, or a tensor of a batch, on the device; images channels_last."""
    images = isinstance(thing, torch.nn.Module) or thing.dim() == 4
    return thing.to(device, **({"memory_format": torch.channels_last} if images else {}))


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def used_bytes(device):
    """Of the device by all that runs there; on the CPU, the most that this process had."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total - free
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(variant, dtype, groups, steps, name, device):
    torch.manual_seed(0)
    model = placed(MODELS[name](), device)
    loop = make_loop(variant, model, DTYPES[dtype], device)
    inputs, targets = (placed(tensor, device) for tensor in model.batch())
    count = sum(parameter.numel() for parameter in model.parameters())
    series = Series(name, f"python-{variant}-{dtype}", parameters=count)
    for _ in range(steps):
        loop.step(inputs, targets)
    for _ in range(groups):
        wait_for(device)
        series.begin()
        for _ in range(steps):
            loop.step(inputs, targets)
        wait_for(device)
        series.end()
    series.note("used_bytes", used_bytes(device))
    series.write()


def main():
    variant, groups, steps, *cases = sys.argv[1:]
    device = torch.device(os.environ.get("LOCKSTEP_DEVICE", "cuda"))
    torch.backends.cudnn.benchmark = True
    for dtype, name in zip(cases[::2], cases[1::2]):
        measure(variant, dtype, int(groups), int(steps), name, device)


if __name__ == "__main__":
    main()
