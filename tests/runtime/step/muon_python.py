"""muon_python.py FILE: what torch.optim.Muon and torch.optim.AdamW make of a small model, for muon_test.cpp.

FILE gets the parameters (start.N), their gradients in each step (gradient.STEP.N) and the parameters after the
last step of each variant (VARIANT.N). Matrices but the last are Muon's, the rest AdamW's."""
import sys

import torch
from safetensors.torch import save_file

STEPS = 6
SIZES = ((24, 16), (24,), (16, 40), (8, 8), (10, 16))
REST = (1, 4)  # a bias, and a matrix that is the output layer
VARIANTS = {
    "default": dict(lr=0.02),
    "plain": dict(lr=0.01, nesterov=False, weight_decay=0.0, momentum=0.9),
    "rms": dict(lr=1e-3, adjust_lr_fn="match_rms_adamw", ns_steps=3),
    "coefficients": dict(lr=0.02, ns_coefficients=(2.0, -1.5, 0.5), eps=1e-5),
}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    start = [torch.randn(size) for size in SIZES]
    gradients = [[torch.randn(size) for size in SIZES] for _ in range(STEPS)]
    tensors = {f"start.{i}": tensor for i, tensor in enumerate(start)}
    for step, of_step in enumerate(gradients):
        tensors.update({f"gradient.{step}.{i}": tensor for i, tensor in enumerate(of_step)})
    for name, options in VARIANTS.items():
        parameters = [tensor.clone().requires_grad_() for tensor in start]
        muon = torch.optim.Muon([p for i, p in enumerate(parameters) if i not in REST], **options)
        adamw = torch.optim.AdamW([parameters[i] for i in REST], lr=3e-3, foreach=False)
        for of_step in gradients:
            for parameter, gradient in zip(parameters, of_step):
                parameter.grad = gradient.clone()
            muon.step()
            adamw.step()
        tensors.update({f"{name}.{i}": p.detach() for i, p in enumerate(parameters)})
    save_file(tensors, sys.argv[1])


main()
