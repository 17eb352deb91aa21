"""Runs the tiny GPT at O0, O1 bf16 and O2 fp16 and compares the loss curves.

  loss_curves.py PROGRAM STEPS [SVG]

Fails where a curve, averaged over 10 steps, leaves fp32's by more than 1 %. Draws the curves.
"""

import subprocess
import sys

program, steps = sys.argv[1], int(sys.argv[2])
output = subprocess.run([program, str(steps)], check=True, capture_output=True, text=True).stdout
lines = [line.split(",") for line in output.splitlines() if "," in line]
names, rows = lines[0][1:], [[float(x) for x in line[1:]] for line in lines[1:]]
assert len(rows) == steps, f"{len(rows)} lines of losses, expected {steps}"
curves = list(zip(*rows))
WINDOW = 10


def smooth(curve):
    return [sum(curve[i : i + WINDOW]) / WINDOW for i in range(0, len(curve) - WINDOW + 1)]


def furthest(name, curve):
    apart = max(abs(a / b - 1) for a, b in zip(smooth(curve), smooth(curves[0])))
    print(f"{name}: last loss {curve[-1]:.4f}, at most {100 * apart:.2f} % from {names[0]}")
    return apart


def svg(width=720, height=360, margin=48):
    colours = ["#1b6ca8", "#d1495b", "#3c8d40"]
    top = max(max(c) for c in curves)
    x = lambda i: margin + i * (width - 2 * margin) / (steps - 1)
    y = lambda v: height - margin - v * (height - 2 * margin) / top
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for value in range(int(top) + 1):
        parts.append(f'<line x1="{margin}" x2="{width - margin}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{margin - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        parts.append(f'<text x="{x(step):.1f}" y="{height - margin + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">update</text>')
    parts.append(f'<text x="{margin}" y="{margin - 20}">loss (nats a byte), tiny byte-level GPT</text>')
    dashes = ["", "6 4", "2 4"]
    for k, (name, curve) in enumerate(zip(names, curves)):
        points = " ".join(f"{x(i):.1f},{y(v):.2f}" for i, v in enumerate(curve))
        parts.append(f'<polyline fill="none" stroke="{colours[k]}" stroke-width="1.6" stroke-dasharray="{dashes[k]}" points="{points}"/>')
        parts.append(f'<text x="{width - margin - 120}" y="{margin + 18 * k}" fill="{colours[k]}">{name}, ends at {curve[-1]:.3f}</text>')
    return "\n".join(parts + ["</svg>\n"])


apart = [furthest(name, curve) for name, curve in zip(names, curves)]
if len(sys.argv) > 3:
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write(svg())
assert curves[0][-1] < 0.7 * curves[0][0], "nothing was learned"
sys.exit(max(apart) > 0.01)
