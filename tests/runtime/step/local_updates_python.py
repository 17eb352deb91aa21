"""local_updates_python.py FILE: local updates by torch.optim.SGD, for local_updates_test.cpp.

FILE gets the start (start), the gradient of each step and rank (gradient.STEP.RANK) and, for 1 to 3 ranks, the
weights after all steps (NAME.RANKS). Gradients and inner steps are multiples of 2^-6, so inner steps are exact."""
import sys

import torch
from safetensors.torch import save_file

STEPS, ROUND, RANKS, SIZE = 9, 3, 3, 130
INNER_LR = 0.5
OUTER = {
    "average": dict(lr=1.0),
    "momentum": dict(lr=0.5, momentum=0.8),
    "diloco": dict(lr=0.7, momentum=0.9, nesterov=True),
}


def train(start, gradients, ranks, options):
    anchor = start.clone().requires_grad_()
    outer = torch.optim.SGD([anchor], **options)
    for first in range(0, STEPS, ROUND):
        total = torch.zeros_like(start)
        for rank in range(ranks):
            weight = anchor.detach().clone().requires_grad_()
            inner = torch.optim.SGD([weight], lr=INNER_LR)
            for step in range(first, first + ROUND):
                weight.grad = gradients[step][rank]
                inner.step()
            total += anchor.detach() - weight.detach()
        anchor.grad = total / ranks
        outer.step()
    return anchor.detach()


def main():
    torch.manual_seed(3)
    start = torch.randint(-64, 64, (SIZE,)) / 64
    gradients = [[torch.randint(-64, 64, (SIZE,)) / 32 for _ in range(RANKS)] for _ in range(STEPS)]
    tensors = {"start": start}
    for step, of_ranks in enumerate(gradients):
        for rank, gradient in enumerate(of_ranks):
            tensors[f"gradient.{step}.{rank}"] = gradient
    for name, options in OUTER.items():
        for ranks in range(1, RANKS + 1):
            tensors[f"{name}.{ranks}"] = train(start, gradients, ranks, options)
    save_file(tensors, sys.argv[1])


main()
