#!/usr/bin/env python3
"""Draws memory against time of checkpointed steps of an encoder: plot_activation.py --build DIR SVG."""

import argparse
import pathlib
import statistics

from harness import launch

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 440, 64, 56, 24, 24
KINDS = (("segments", "#1f6feb", "checkpoint_sequential, by number of segments"),
         ("budget", "#cf222e", "planner, ten budgets"),
         ("python", "#6e7781", "Python's checkpoint_sequential"))


def measured(build, rounds):
    """{variant: (peak in MiB, time relative to the plain step)} of the fastest steps."""
    jobs = (launch.Job("solo", launch.program(build, "activation", "encoder", "curve")),
            launch.Job("solo", launch.peer("checkpoint_chains.py", "encoder", *range(1, 13))))
    seconds, peaks = {}, {}
    for _ in range(rounds):
        for job in jobs:
            for record in launch.run(job, build):
                steps = [end - begin for begin, end in zip(record["begin"], record["end"])]
                seconds.setdefault(record["variant"], []).append(min(steps))
                peaks.setdefault(record["variant"], []).append(record["peak"])
    plain = min(seconds["segments 1"])
    return {variant: (statistics.median(peaks[variant]) / 2**20, min(times) / plain)
            for variant, times in seconds.items()}


class Axes:
    def __init__(self, points):
        self.most_memory = max(memory for memory, _ in points) * 1.08
        self.most_time = max(time for _, time in points) * 1.05
        self.least_time = min(0.95, min(time for _, time in points))

    def at(self, memory, time):
        x = LEFT + (WIDTH - LEFT - RIGHT) * memory / self.most_memory
        share = (time - self.least_time) / (self.most_time - self.least_time)
        return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    def drawn(self):
        x0, y0 = self.at(0, self.least_time)
        lines = [f'<path d="M{x0:.1f} {TOP} V{y0:.1f} H{WIDTH - RIGHT}" fill="none" stroke="#57606a"/>']
        for memory in range(0, int(self.most_memory) + 1, 20):
            x, y = self.at(memory, self.least_time)
            lines.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{memory}</text>')
        for tenth in range(10, int(self.most_time * 10) + 1):
            x, y = self.at(0, tenth / 10)
            lines.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10}</text>')
            lines.append(f'<path d="M{x:.1f} {y:.1f} H{WIDTH - RIGHT}" stroke="#d0d7de"/>')
        lines.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 14}" text-anchor="middle">'
                     'peak activations, MiB</text>')
        lines.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" '
                     f'transform="rotate(-90 16 {HEIGHT / 2})">time of a step, plain = 1</text>')
        return lines


def circle(x, y, kind, colour):
    """Python's points are rings, since ours may lie upon them."""
    fill = "none" if kind == "python" else colour
    radius = 6 if kind == "python" else 4
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{colour}"/>'


def svg(points):
    axes = Axes(points.values())
    parts = axes.drawn()
    drawn = [kind for kind in KINDS if any(variant.startswith(kind[0]) for variant in points)]
    for row, (kind, colour, legend) in enumerate(drawn):
        places = {variant: axes.at(*point) for variant, point in points.items()
                  if variant.startswith(kind)}
        if kind == "budget":
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(places.values()))
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
        for variant, (x, y) in places.items():
            parts.append(circle(x, y, kind, colour))
            if kind == "segments":
                parts.append(f'<text x="{x + 8:.1f}" y="{y - 6:.1f}" font-size="10" '
                             f'fill="{colour}">{variant.split()[-1]}</text>')
        legend_y = TOP + 10 + 20 * row
        parts.append(circle(WIDTH - 320, legend_y, kind, colour))
        parts.append(f'<text x="{WIDTH - 308}" y="{legend_y + 4}">{legend}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=2, metavar="N",
                        help="runs of each program, of which the fastest steps count (2)")
    parser.add_argument("svg", type=pathlib.Path)
    arguments = parser.parse_args()
    points = measured(arguments.build.resolve(), arguments.rounds)
    arguments.svg.write_text(svg(points), encoding="utf-8")
    for variant, (memory, time) in points.items():
        print(f"{variant:20} {memory:8.1f} MiB {time:6.3f}")


if __name__ == "__main__":
    main()
