"""PyTorch's fused AdamW with GradScaler on fp32 parameters, groups of ten updates.

gpu_update.py DEVICE PARAMETERS GROUPS
"""

import sys

import torch

from recorder import Series

UPDATES_IN_GROUP = 10
LARGEST = 1 << 22


def parameters_of(count, device):
    """As many elements in tensors of the size of a transformer's matrices."""
    sizes = [LARGEST] * (count // LARGEST) + [count % LARGEST] * (count % LARGEST > 0)
    return [torch.nn.Parameter(torch.zeros(size, device=device)) for size in sizes]


def wait_for(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main():
    device, count, groups = torch.device(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    parameters = parameters_of(count, device)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler(device.type)
    scaler.scale(torch.ones((), device=device))  # makes its scale
    series = Series("adamw", "python-fused", parameters=count)
    for group in range(-1, groups):
        wait_for(device)
        if group >= 0:
            series.begin()
        for _ in range(UPDATES_IN_GROUP):
            scaler.step(optimizer)
            scaler.update()
        wait_for(device)
        if group >= 0:
            series.end()
    series.write()


if __name__ == "__main__":
    main()
