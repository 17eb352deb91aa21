"""Exports the surrogate of 12_heat.f90: 12_heat_model.py heat.pt2"""

import sys

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2, padding_mode="circular"), nn.Tanh(),
                      nn.Conv2d(8, 1, 5, padding=2, padding_mode="circular")).train()
batch = torch.export.Dim("batch", max=4096)
program = torch.export.export(model, (torch.zeros(8, 1, 24, 24),), dynamic_shapes=({0: batch},))
torch.export.save(program, sys.argv[1])
