#!/usr/bin/env python3
"""Draws the stored ratios of whole steps: plot_steps.py [SVG], by default docs/performance-steps.svg."""

import json
import pathlib
import sys

from harness.stored import RESULTS

SVG = RESULTS.parent.parent / "docs" / "performance-steps.svg"
MACHINES = {"amd-25-avx512": "AMD EPYC", "intel-6-avx512": "Intel Xeon"}
MODELS = {"lstm": "LSTM", "gpt": "GPT", "resnet18": "ResNet-18"}
PEERS = {"bound": ("#6e7781", "lockstep's ranks without communication"),
         "libtorch-mpi-fused-malloc": ("#1a7f37", "LibTorch, one MPI all-reduce, tuned malloc"),
         "python-ddp-malloc": ("#1f6feb", "Python DDP, tuned malloc"),
         "python-ddp-compiled": ("#8250df", "Python DDP, tuned malloc, torch.compile"),
         "python-ddp": ("#cf222e", "Python DDP as installed")}
WIDTH, LEFT, RIGHT, TOP, ROW, FIRST, LAST = 760, 170, 24, 76, 34, 0.8, 1.6


def x_of(ratio):
    return LEFT + (WIDTH - LEFT - RIGHT) * (ratio - FIRST) / (LAST - FIRST)


def dot(x, y, colour):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}" fill-opacity="0.85"/>'


def legend():
    for number, (colour, name) in enumerate(PEERS.values()):
        x, y = 16 + 390 * (number % 2), 20 + 20 * (number // 2)
        yield from (dot(x, y - 4, colour), f'<text x="{x + 12}" y="{y}">{name}</text>')


def drawn():
    """The chart, as SVG."""
    rows = [(machine, family, model) for family, machine in MACHINES.items() for model in MODELS]
    bottom = TOP + ROW * len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 48}" font-family="sans-serif" '
             'font-size="13">', '<rect width="100%" height="100%" fill="white"/>', *legend()]
    for tenth in range(round(10 * FIRST), round(10 * LAST) + 1):
        x = x_of(tenth / 10)
        parts += [f'<path d="M{x:.1f} {TOP} V{bottom}" stroke="{"#24292f" if tenth == 10 else "#d0d7de"}"/>',
                  f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tenth / 10:.1f}</text>']
    parts.append(f'<text x="{x_of(1.0):.1f}" y="{bottom + 38}">time of a step, lockstep with the fp16 wire = 1</text>')
    for number, (machine, family, model) in enumerate(rows):
        ratios = json.loads((RESULTS / f"{family}.json").read_text(encoding="utf-8"))["ratios"]
        y = TOP + ROW * (number + 0.5)
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{machine}, {MODELS[model]}</text>')
        parts += [dot(x_of(ratios[f"step / {model} / {peer}"]), y, colour) for peer, (colour, _) in PEERS.items()]
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    (pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else SVG).write_text(drawn(), encoding="utf-8")
