#!/usr/bin/env python3
"""Writes the differentiable operators of the wheel's own tests, for the test that runs them in C++:
operators.py DIR

For each operator of op_db one or two samples: DIR/N.pt is the traced operator, which takes the tensors
of the sample; DIR/cases.pt has, for each N, the name, the tensors, the gradients of the outputs, and
the gradients of the tensors in Python. What cannot be written is listed by name in DIR/skipped.txt.
"""
import os
import sys
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.simplefilter("ignore")

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

MOST_ELEMENTS = 20_000
SEED = 42  # that of op_db's own wrapper of random operators

# What has no result to compare.
NO_RESULT = {
    "empty_like": "returns memory that nobody filled",
    "new_empty": "returns memory that nobody filled",
    "new_empty_strided": "returns memory that nobody filled",
}


NOT_READ_IN_CPP = (torch.uint16, torch.uint32, torch.uint64, torch.complex32)


class Skip(Exception):
    pass


def in_place(op):
    variant = op.inplace_variant
    return lambda x, *args, **kwargs: variant(x.clone(), *args, **kwargs)


def is_differentiable(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def callable_of(op, variant, sample):
    """The operator as a function of the sample's tensors, and these."""
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach().requires_grad_(leaves[i].requires_grad) for i in places]
    if any(tensor.layout != torch.strided for tensor in tensors):
        raise Skip("its samples are sparse")
    if any(tensor.dtype in NOT_READ_IN_CPP for tensor in tensors):
        raise Skip("C++ cannot read its samples")

    def run(*inputs):
        filled = list(leaves)
        for place, tensor in zip(places, inputs):
            filled[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(filled, tree)
        result = op.gradcheck_wrapper(variant, first, *args, **kwargs)
        outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        return tuple(outputs)

    return run, tensors


def gradients_of(run, tensors):
    torch.manual_seed(SEED)
    outputs = run(*tensors)
    if any(output.layout != torch.strided for output in outputs):
        raise Skip("its result is sparse")
    outputs = [o for o in outputs if o.requires_grad and is_differentiable(o)]
    wanted = [t for t in tensors if t.requires_grad]
    if not outputs or not wanted:
        raise Skip("no output has a gradient")
    if any(output.dtype in NOT_READ_IN_CPP for output in outputs):
        raise Skip("C++ cannot read its result")
    random = torch.Generator().manual_seed(1)
    seeds = [torch.randn(o.shape, dtype=o.dtype, generator=random) for o in outputs]
    gradients = torch.autograd.grad(outputs, wanted, seeds, allow_unused=True)
    if all(g is None for g in gradients):
        raise Skip("no input has a gradient")
    gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, gradients)]
    if any(g.layout != torch.strided for g in gradients):
        raise Skip("its gradient is sparse")
    return seeds, [g.resolve_conj().resolve_neg().clone() for g in gradients]


def case_of(op, variant, sample):
    run, tensors = callable_of(op, variant, sample)
    if sum(tensor.numel() for tensor in tensors) > MOST_ELEMENTS:
        raise Skip("its samples are large")
    seeds, gradients = gradients_of(run, tensors)
    torch.manual_seed(SEED)
    traced = torch.jit.trace(run, tuple(tensors), check_trace=False)
    return traced, {"inputs": [t.detach().clone() for t in tensors],
                    "needs": [t.requires_grad for t in tensors],
                    "seeds": seeds, "gradients": gradients}


def samples_of(op):
    torch.manual_seed(0)
    yield from op.sample_inputs("cpu", torch.float32, requires_grad=True)


def cases_of(op, variant, most):
    """Up to `most` cases, as different as the samples' order has them: the first and a later one."""
    found, reason = [], "it has no samples"
    for number, sample in enumerate(samples_of(op)):
        if found and number < 4:
            continue
        try:
            found.append(case_of(op, variant, sample))
        except Skip as skip:
            reason = str(skip)
        except Exception as error:
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        if len(found) == most or number > 20:
            break
    return found, reason


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    cases, skipped = [], []

    def add(name, op, variant, most):
        found, reason = cases_of(op, variant, most)
        for traced, case in found:
            torch.jit.save(traced, os.path.join(folder, f"{len(cases)}.pt"))
            cases.append({"name": name, **case})
        if not found:
            skipped.append(f"{name}: {reason}")

    for op in op_db:
        if not op.supports_autograd or not op.supports_dtype(torch.float32, "cpu"):
            skipped.append(f"{op.formatted_name}: not differentiable in fp32 on the CPU")
        elif op.name in NO_RESULT:
            skipped.append(f"{op.formatted_name}: {NO_RESULT[op.name]}")
        else:
            add(op.formatted_name, op, op.get_op(), 2)
            if op.inplace_variant is not None and op.supports_inplace_autograd:
                add(op.formatted_name + ", in place", op, in_place(op), 1)
    torch.save(cases, os.path.join(folder, "cases.pt"))
    with open(os.path.join(folder, "skipped.txt"), "w") as file:
        file.writelines(line + "\n" for line in skipped)


if __name__ == "__main__":
    main()
