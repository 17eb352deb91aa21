"""Exports the model of 14_serving.cpp, and compiles it when it is trained:

  14_serving_model.py export model.pt2
  14_serving_model.py compile trained.pt2 served.pt2"""

import sys

import torch
from torch import nn
from torch.export.pt2_archive._package import load_pt2, package_pt2


def export(path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.02), nn.Linear(64, 1))
    batch = torch.export.Dim("batch", max=4096)
    programs = {mode: torch.export.export(model.train(mode == "train"), (torch.zeros(8, 2),), dynamic_shapes=({0: batch},))
                for mode in ("train", "eval")}
    package_pt2(path, exported_programs=programs)


def compile(trained, served):
    program = load_pt2(trained).exported_programs["eval"]
    torch._inductor.aoti_compile_and_package(program, package_path=served)


{"export": export, "compile": compile}[sys.argv[1]](*sys.argv[2:])
