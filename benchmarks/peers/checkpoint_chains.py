"""checkpoint_sequential of Python's torch on chains of chains.h: NAME SEGMENTS..."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential

from recorder import Series

REPETITIONS = 5
ENCODERS = {"encoder": (256, 4, 8, 64), "bert-base": (768, 12, 4, 64)}


class EncoderLayer(nn.Module):
    def __init__(self, units, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.projection = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.up, self.down = nn.Linear(units, 4 * units), nn.Linear(4 * units, units)
        self.norm1, self.norm2 = nn.LayerNorm(units), nn.LayerNorm(units)

    def forward(self, x):
        batch, length, units = x.shape
        query, key, value = self.qkv(x).view(
            batch, length, 3, self.heads, units // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        mixed = mixed.transpose(1, 2).reshape(batch, length, units)
        h = self.norm1(x + functional.dropout(self.projection(mixed), 0.1))
        return self.norm2(h + functional.dropout(self.down(functional.gelu(self.up(h))), 0.1))


class ResidualLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(10))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


def chain(name):
    """The model and an input for it."""
    if name == "residual-1000":
        return nn.Sequential(*(ResidualLayers() for _ in range(100))), torch.randn(256, 128)
    units, heads, batch, length = ENCODERS[name]
    model = nn.Sequential(*(EncoderLayer(units, heads) for _ in range(12)))
    return model, torch.randn(batch, length, units)


def step(model, segments, x):
    y = checkpoint_sequential(model, segments, x, use_reentrant=False)
    y.square().mean().backward()


def peak_bytes(model, segments, x):
    """The most bytes that one step held, from the profiler's record of allocations."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                profile_memory=True) as profile:
        step(model, segments, x)
    events = [event for event in profile.profiler.kineto_results.events()
              if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    name, segments = sys.argv[1], [int(word) for word in sys.argv[2:]]
    model, x = chain(name)
    series = {}
    for count in segments:
        step(model, count, x)
        series[count] = Series(name, f"python segments {count}", peak=peak_bytes(model, count, x))
    for _ in range(REPETITIONS):
        for count in segments:
            series[count].begin()
            step(model, count, x)
            series[count].end()
    for one in series.values():
        one.write()


if __name__ == "__main__":
    main()
