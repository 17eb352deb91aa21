"""What the parity tests share: small models, their data, and how both reach train.cpp."""

import os
import pathlib
import subprocess
import warnings
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

UNITS, HEADS, VOCABULARY, LENGTH = 32, 4, 32, 16


class Attention(nn.Module):
    """No bias: the gradient of a key's bias is rounding noise, which Adam makes into full steps."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(UNITS, 3 * UNITS, bias=False)
        self.projection = nn.Linear(UNITS, UNITS)
        self.heads = HEADS

    def forward(self, x):
        batch, length, units = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, units // self.heads)
        split = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(split[0], split[1], split[2],
                                                        is_causal=True)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, units))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(UNITS), Attention()
        self.norm2 = nn.LayerNorm(UNITS)
        self.feed_forward = nn.Sequential(nn.Linear(UNITS, 4 * UNITS), nn.GELU(),
                                          nn.Linear(4 * UNITS, UNITS))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


def make_transformer():
    return nn.Sequential(nn.Embedding(VOCABULARY, UNITS), Block(), Block(),
                         nn.LayerNorm(UNITS), nn.Linear(UNITS, VOCABULARY))


def make_mlp():
    return nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, 10))


def make_model(name):
    torch.manual_seed(1)
    return {"mlp": make_mlp, "transformer": make_transformer}[name]()


def make_data(name, steps, ranks):
    """Inputs and learnable targets, both steps x ranks x batch x ..."""
    torch.manual_seed(2)
    if name == "transformer":
        start = torch.randint(VOCABULARY, (steps, ranks, 4, 1))
        tokens = (start + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
        return tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    inputs = torch.randn(steps, ranks, 16, 20)
    return inputs, inputs[..., :10].argmax(-1)


def make_optimizer(name, parameters):
    """Hyper-parameters as in train.cpp."""
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=1e-3, weight_decay=0.01)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)


def train(model, optimizer, inputs, targets):
    """Trains on steps x batch data; returns the losses."""
    losses = []
    for x, y in zip(inputs, targets):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def write(path, tensor):
    torch.from_file(str(path), shared=True, size=tensor.numel(), dtype=tensor.dtype).copy_(
        tensor.flatten())


def read(path, dtype):
    size = pathlib.Path(path).stat().st_size // dtype.itemsize
    return torch.from_file(str(path), shared=False, size=size, dtype=dtype).clone()


class Result(NamedTuple):
    """What one rank's training gave: fp64 losses by step, all parameters in one fp32 tensor."""

    losses: torch.Tensor
    weights: torch.Tensor


def write_result(folder, rank, losses, model):
    write(folder / f"losses.{rank}", torch.tensor(losses, dtype=torch.float64))
    write(folder / f"weights.{rank}", flat(model))


def read_results(folder, ranks):
    return [Result(read(folder / f"losses.{rank}", torch.float64),
                   read(folder / f"weights.{rank}", torch.float32)) for rank in range(ranks)]


def lockstep_train(launcher, program, folder, model, optimizer, inputs, targets):
    """Runs train.cpp on the same model and data; returns each rank's result."""
    steps, ranks, batch, width = inputs.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated in Python, not in C++
        torch.jit.script(model).save(str(folder / "model.pt"))
    write(folder / "inputs", inputs)
    write(folder / "targets", targets)
    write(folder / "header", torch.tensor([steps, ranks, batch, width,
                                           int(inputs.dtype == torch.int64)]))
    subprocess.run([*launcher, program, str(folder), optimizer, str(steps)], check=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})
    return read_results(folder, ranks)


def losses_apart(ours, theirs):
    """The largest relative difference of a step's loss."""
    return ((ours.losses - theirs.losses).abs() / theirs.losses).max().item()


def weights_apart(ours, theirs, model):
    """The worst over the model's parameters of: largest difference / largest value."""
    sizes = [parameter.numel() for parameter in model.parameters()]
    return max(((one - other).abs().max() / other.abs().max()).item()
               for one, other in zip(ours.weights.split(sizes), theirs.weights.split(sizes)))
