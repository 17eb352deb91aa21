"""double_python.py FILE: what torch.optim makes of fp64 parameters, for double_test.cpp.

FILE gets the parameters (start.N), their gradients in each step (gradient.STEP.N), the parameters after the
last step of each optimizer (OPTIMIZER.N) and the moving average of its weights (OPTIMIZER.ema.N)."""
import sys

import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn

STEPS = 20
SIZES = ((1,), (3,), (8, 8), (65,), (13, 17), (2500,))
LR = 1e-2


class Lion(torch.optim.Optimizer):
    """Chen et al., 2023, in the operations of torch."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                move = m.mul(group["beta1"]).add_(p.grad, alpha=1 - group["beta1"]).sign_()
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(move, alpha=-group["lr"])
                m.mul_(group["beta2"]).add_(p.grad, alpha=1 - group["beta2"])


class Lamb(torch.optim.Optimizer):
    """You et al., 2020, with the bias corrections of Adam."""

    @torch.no_grad()
    def step(self):
        self.count = getattr(self, "count", 0) + 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                m = state.setdefault("exp_avg", torch.zeros_like(p)).lerp_(p.grad, 1 - 0.9)
                v = state.setdefault("exp_avg_sq", torch.zeros_like(p))
                v.mul_(0.999).addcmul_(p.grad, p.grad, value=1 - 0.999)
                root = (1 - 0.999**self.count) ** 0.5
                direction = m / (1 - 0.9**self.count) / (v.sqrt() / root + 1e-6) + group["weight_decay"] * p
                p.sub_(direction * (group["lr"] * (p.norm() / direction.norm())))


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1),
    "adamw_fast": lambda p: torch.optim.AdamW(p, LR, betas=(0.3, 0.95), eps=1e-4, weight_decay=0),
    "adam": lambda p: torch.optim.Adam(p, LR, weight_decay=0.05),
    "sgd": lambda p: torch.optim.SGD(p, LR),
    "sgd_decay": lambda p: torch.optim.SGD(p, LR, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, LR, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True),
    "adamw_groups": lambda p: torch.optim.AdamW(
        [{"params": p[::2]}, {"params": p[1::2], "weight_decay": 0}], LR, betas=(0.3, 0.95), eps=1e-4, weight_decay=0.1
    ),
    "sgd_groups": lambda p: torch.optim.SGD(
        [{"params": p[::2]}, {"params": p[1::2], "momentum": 0.5}], LR, momentum=0.9, weight_decay=0.1, nesterov=True
    ),
    "adagrad": lambda p: torch.optim.Adagrad(p, LR),
    "lion": lambda p: Lion(p, dict(lr=LR, beta1=0.9, beta2=0.99, weight_decay=0.1)),
    "lamb": lambda p: Lamb(p, dict(lr=LR, weight_decay=0.1)),
}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    tensors = {}
    draw = lambda: [torch.randn(size, dtype=torch.float64) for size in SIZES]
    for n, start in enumerate(draw()):
        tensors[f"start.{n}"] = start
    for step in range(STEPS):
        for n, gradient in enumerate(draw()):
            tensors[f"gradient.{step}.{n}"] = gradient * 10.0 ** torch.randint(-6, 4, gradient.shape)
    for name, make in OPTIMIZERS.items():
        parameters = [tensors[f"start.{n}"].clone().requires_grad_() for n in range(len(SIZES))]
        averages = [p.detach().clone() for p in parameters]
        optimizer = make(parameters)
        for step in range(STEPS):
            for n, p in enumerate(parameters):
                p.grad = tensors[f"gradient.{step}.{n}"].clone()
            optimizer.step()
            get_ema_multi_avg_fn(0.9)(averages, [p.detach() for p in parameters], step)
        for n, p in enumerate(parameters):
            tensors[f"{name}.{n}"] = p.detach()
            tensors[f"{name}.ema.{n}"] = averages[n]
    save_file(tensors, sys.argv[1])


main()
