"""export_models.py FOLDER: writes the models of benchmarks/exported.cpp, as torch.export saves them."""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional

WIDTH = 32
HEADS = 4
LAYERS = 16


class Block(nn.Module):
    """A transformer block before its norms, as models are written."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def main():
    folder = pathlib.Path(sys.argv[1])
    mlp = nn.Sequential(*[layer for _ in range(LAYERS)
                          for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
    batch = torch.export.Dim("batch", max=1024)
    for name, model, x in (("mlp", mlp, torch.randn(4, WIDTH)),
                           ("block", Block(), torch.randn(4, 8, WIDTH))):
        program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
        torch.export.save(program, folder / f"{name}.pt2")


main()
