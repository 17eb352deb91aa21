#!/usr/bin/env python3
"""Trains a word LSTM and a GPT on two hosts with a slow link between them, synchronously and with LocalUpdates, and draws
the loss against time and against updates: local_updates.py --build DIR --data DIR --link 1gbit SVG.
The data: DIR/wikitext-2/train.txt, valid.txt and test.txt, DIR/shakespeare/input.txt and DIR/gpt2-tokenizer."""

import argparse
import json
import pathlib
import statistics
import tempfile

from harness.launch import Failed, Job, run

LSTM = ("07_word_lm", "--epochs", 1, "--dropout", 0, "--save-every", 1000000)
GPT = ("10_gpt2", "--epochs", 1, "--layers", 4, "--width", 256, "--heads", 4, "--context", 128, "--length", 128,
       "--tokens", 1, "--save-every", 1000000)
RUNS = {"LSTM": {"synchronous, fp16 wire": (*LSTM, "--wire", "fp16"),
                 "LocalUpdates(16)": (*LSTM, "--local-updates", 16)},
        "GPT": {"synchronous, fp16 wire": (*GPT, "--wire", "fp16"),
                "LocalUpdates::diloco(16)": (*GPT, "--local-updates", 16)}}
COLOURS = ("#6e7781", "#1f6feb", "#cf222e")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 420, 300, 56, 48, 56


def shortened(data, folder, lines, characters):
    """Texts of which an epoch takes minutes."""
    (folder / "words").mkdir()
    for name, count in (("train", lines), ("valid", 100), ("test", 100)):
        text = (data / "wikitext-2" / f"{name}.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "words" / f"{name}.txt").write_text("".join(text[:count]), encoding="utf-8")
    text = (data / "shakespeare" / "input.txt").read_text(encoding="utf-8")
    (folder / "text.txt").write_text(text[:characters], encoding="utf-8")


def curve(build, link, program, arguments, run_folder):
    """[(seconds, update, mean loss of the ranks)] of a run."""
    run(Job("hosts", (build / "examples" / program, *arguments, "--run", run_folder), link=link), build)
    rows = [json.loads(line) for line in (run_folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "mean_loss" in row]
    begin = rows[0]["time"] - (rows[1]["time"] - rows[0]["time"])
    return [(row["time"] - begin, row["update"], row["mean_loss"]) for row in rows]


def smooth(points):
    """Means of 5 rows of the log."""
    return [tuple(statistics.mean(column) for column in zip(*points[at:at + 5])) for at in range(0, len(points) - 4, 5)]


def plot(title, axis, curves, column, left, top):
    curves = {name: [(point[column], point[2]) for point in smooth(points)] for name, points in curves.items()}
    every = [point for points in curves.values() for point in points]
    most, low, high = max(x for x, _ in every), min(y for _, y in every), max(y for _, y in every)

    def at(x, y):
        return (f"{left + LEFT + (WIDTH - LEFT - 16) * x / most:.1f},"
                f"{top + HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (y - low) / (high - low):.1f}")

    parts = [f'<text x="{left + LEFT}" y="{top + 18}">{title}</text>',
             f'<path d="M{at(0, high)} L{at(0, low)} L{at(most, low)}" fill="none" stroke="#57606a"/>',
             f'<text x="{left + WIDTH / 2}" y="{top + HEIGHT - 14}" text-anchor="middle">{axis}, 0 to {most:.0f}</text>']
    for value in (low, high):
        y = at(0, value).split(",")[1]
        parts.append(f'<text x="{left + LEFT - 6}" y="{y}" text-anchor="end">{value:.2f}</text>')
    for row, (name, points) in enumerate(curves.items()):
        line = " ".join(at(x, y) for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[row]}" stroke-width="2"/>')
        parts.append(f'<text x="{left + WIDTH - 16}" y="{top + 36 + 16 * row}" text-anchor="end" fill="{COLOURS[row]}">'
                     f'{name}</text>')
    return parts


def svg(found):
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {HEIGHT * len(found)}" '
             'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="white"/>']
    for row, (title, curves) in enumerate(found.items()):
        for column, axis in ((0, "seconds"), (1, "updates")):
            parts += plot(f"{title}: training loss", axis, curves, column, column * WIDTH, row * HEIGHT)
    return "\n".join([*parts, "</svg>\n"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--link", default="1gbit", help="rate of the link, as tc takes it (1gbit)")
    parser.add_argument("--lines", type=int, default=4000, help="of WikiText-2 (4000)")
    parser.add_argument("--characters", type=int, default=1000000, help="of the other text (1000000)")
    parser.add_argument("svg", type=pathlib.Path)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        shortened(options.data, folder, options.lines, options.characters)
        texts = {"07_word_lm": ("--data", folder / "words"),
                 "10_gpt2": ("--text", folder / "text.txt", "--tokenizer", options.data / "gpt2-tokenizer")}
        for title, runs in RUNS.items():
            for number, (name, (program, *arguments)) in enumerate(runs.items()):
                points = curve(options.build.resolve(), options.link, program, [*arguments, *texts[program]],
                               folder / f"{program}-{number}")
                found.setdefault(title, {})[name] = points
                seconds, updates, _ = points[-1]
                print(f"{title}, {name}: {updates} updates in {seconds:.0f} s, {1e3 * seconds / updates:.0f} ms each; "
                      f"loss of the last tenth {statistics.mean(point[2] for point in points[-len(points) // 10:]):.3f}",
                      flush=True)
    options.svg.write_text(svg(found), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        raise SystemExit(str(error)) from error
