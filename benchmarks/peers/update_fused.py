"""The fused AdamW of Python's torch, on as many parameters and tensors as update.cpp."""

import torch

from recorder import Series

TENSORS, NUMEL = 14, 1 << 20
WARM_UP, REPETITIONS = 3, 15


def main():
    torch.set_num_threads(1)
    parameters = [torch.randn(NUMEL, requires_grad=True) for _ in range(TENSORS)]
    for parameter in parameters:
        parameter.grad = torch.zeros(NUMEL)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    series = Series("adamw", "python-fused", parameters=TENSORS * NUMEL)
    for run in range(WARM_UP + REPETITIONS):
        for parameter in parameters:
            parameter.grad.fill_(1e-3 * (1 + run % 7))
        if run >= WARM_UP:
            series.begin()
        optimizer.step()
        if run >= WARM_UP:
            series.end()
    series.write()


if __name__ == "__main__":
    main()
