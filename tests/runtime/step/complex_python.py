"""complex_python.py FILE: what torch.optim makes of complex parameters, for complex_test.cpp.

FILE gets, for each DTYPE of complex64 and complex128, the parameters (DTYPE.start.N), their gradients in each
step (DTYPE.gradient.STEP.N), the parameters after the last step of each optimizer (DTYPE.OPTIMIZER.N), the moving
average of its weights (DTYPE.OPTIMIZER.ema.N) and the norm of the last gradient (DTYPE.norm). All as real views,
since safetensors has no complex128."""
import sys

import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn

STEPS = 8
SIZES = ((), (3,), (5, 7), (2, 3, 11), (1, 1))
LR = 1e-2

OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, LR, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, LR, weight_decay=0.05),
    "amsgrad": lambda p: torch.optim.Adam(p, LR, amsgrad=True),
    "sgd": lambda p: torch.optim.SGD(p, LR, weight_decay=0.1),
    "momentum": lambda p: torch.optim.SGD(p, LR, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, LR, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, LR, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, LR, weight_decay=0.1),
    "clipped_norm": lambda p: torch.optim.AdamW(p, LR),
    "clipped_value": lambda p: torch.optim.AdamW(p, LR),
}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    tensors = {}
    for dtype in (torch.complex64, torch.complex128):
        prefix = str(dtype).split(".")[1] + "."
        draw = lambda: [torch.randn(size, dtype=dtype) for size in SIZES]
        starts = draw()
        gradients = [draw() for _ in range(STEPS)]
        for n, start in enumerate(starts):
            tensors[f"{prefix}start.{n}"] = start
        for step in range(STEPS):
            for n, gradient in enumerate(gradients[step]):
                tensors[f"{prefix}gradient.{step}.{n}"] = gradient
        for name, make in OPTIMIZERS.items():
            parameters = [start.clone().requires_grad_() for start in starts]
            averages = [p.detach().clone() for p in parameters]
            optimizer = make(parameters)
            for step in range(STEPS):
                for n, p in enumerate(parameters):
                    p.grad = gradients[step][n].clone()
                if name == "clipped_norm":
                    tensors[prefix + "norm"] = torch.nn.utils.clip_grad_norm_(parameters, 2.0)
                if name == "clipped_value":
                    for p in parameters:  # torch.nn.utils.clip_grad_value_() refuses complex gradients
                        torch.view_as_real(p.grad).clamp_(-0.5, 0.5)
                optimizer.step()
                get_ema_multi_avg_fn(0.9)(averages, [p.detach() for p in parameters], step)
            for n, p in enumerate(parameters):
                tensors[f"{prefix}{name}.{n}"] = p.detach()
                tensors[f"{prefix}{name}.ema.{n}"] = averages[n]
    as_real = lambda t: torch.view_as_real(t).contiguous() if t.is_complex() else t
    save_file({name: as_real(t) for name, t in tensors.items()}, sys.argv[1])


main()
