"""Loads archives that ExportedModule::save() wrote, and goes on training them as training_test.cpp does.

continue_training.py FOLDER NAMES... compares NAME.pt2 with the tensors of NAME.safetensors: saved.* are
the parameters and buffers that the archive must have, later.* those after three more steps of SGD."""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.export.pt2_archive._package import load_pt2

torch.set_num_threads(1)
folder, names = sys.argv[1], sys.argv[2:]
wrong = []


def compare(name, prefix, state, expected):
    for key, value in state.items():
        if not torch.equal(value, expected[prefix + key]) or value.dtype != expected[prefix + key].dtype:
            wrong.append(f"{name} {prefix}{key}")
    if len(state) != sum(key.startswith(prefix) for key in expected):
        wrong.append(f"{name} has {len(state)} tensors")


for name in names:
    expected = load_file(f"{folder}/{name}.safetensors")
    programs = load_pt2(f"{folder}/{name}.pt2").exported_programs
    program = programs.get("train", programs.get("model"))
    for other in programs.values():
        compare(name, "saved.", other.state_dict, expected)
    model = program.module()
    # MKL's sums depend on where a tensor begins, and files put it anywhere. Tied weights stay tied.
    copies = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = copies.setdefault(tensor.data_ptr(), tensor.data.clone())
    inputs = [expected[f"input.{i}"].clone() for i in range(sum(key.startswith("input.") for key in expected))]
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.05)
    torch.manual_seed(99)
    for _ in range(3):
        optimizer.zero_grad()
        output = model(*inputs)
        target = expected["target"]
        if output.dim() == 3:
            output, target = output.flatten(0, 1), target.flatten()
        F.cross_entropy(output, target).backward()
        optimizer.step()
    compare(name, "later.", model.state_dict(), expected)
print("wrong:", wrong)
sys.exit(1 if wrong else 0)
