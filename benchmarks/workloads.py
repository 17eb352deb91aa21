#!/usr/bin/env python3
"""Trains the workloads of docs/workloads.md with lockstep and with the same programs in plain Python torch.

  scripts/workloads [--only NAME] [--data DIR] [--ranks N] [--side lockstep|python] [--resume] [--document]
  benchmarks/workloads.py --build DIR --quick    each program on tiny made-up data, in minutes; checks that all run

Writes DIR/workloads.json: rows of workload, metric, ours, python, relative. --document also writes the table and the
curves of docs/workloads.md. Training takes hours: each side can be run by itself (--side), what the other one has
found with the same options is kept, and a run that was interrupted goes on with --resume. Exit code 10: data are missing; the message says where to get them.
"""

import argparse
import json
import lzma
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

from suites.step import MALLOC

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "examples" / "python"
SOURCES = {
    "wikitext-2": "train.txt, valid.txt and test.txt of "
                  "https://github.com/pytorch/examples/tree/main/word_language_model/data/wikitext-2",
    "cifar10_train": "data_batch_1.bin of https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "cifar10_test": "test_batch.bin of https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "tweets": "train.csv of https://www.kaggle.com/c/tweet-sentiment-extraction",
    "vocabulary": "vocab.txt of https://huggingface.co/google-bert/bert-base-uncased",
}
FILES = {  # what is looked for in the folder of data; the first that is there counts
    "wikitext-2": ("wikitext-2", "wikitext-2.tar.xz"),
    "cifar10_train": ("cifar-10-batches-bin/data_batch_1.bin", "data_batch_1.bin", "cifar10_train_10k.bin.xz"),
    "cifar10_test": ("cifar-10-batches-bin/test_batch.bin", "test_batch.bin", "cifar10_test_2k.bin.xz"),
    "tweets": ("train.csv", "tweets_train.csv", "tweets_train.csv.xz"),
    "vocabulary": ("vocab.txt", "bert-vocab/vocab.txt"),
}


class Missing(Exception):
    pass


class Data:
    """Files from a folder; what is compressed is unpacked below `unpacked`."""

    def __init__(self, folder, unpacked):
        self.folder, self.unpacked = folder, unpacked

    def __getitem__(self, name):
        for place in FILES[name]:
            path = self.folder / place
            if path.exists():
                return self.plain(path, name)
        raise Missing(f"{self.folder} has none of {', '.join(FILES[name])}: get {SOURCES[name]} and name the folder "
                      "with --data")

    def plain(self, path, name):
        if path.suffix != ".xz":
            return path
        target = self.unpacked / name
        if not target.exists():
            self.unpacked.mkdir(parents=True, exist_ok=True)
            if path.name.endswith(".tar.xz"):
                with tarfile.open(path) as archive:
                    archive.extractall(target, filter="data")
            else:
                with lzma.open(path) as packed, open(target.with_suffix(".part"), "wb") as file:
                    shutil.copyfileobj(packed, file)
                target.with_suffix(".part").rename(target)
        inside = [one for one in (target, *target.glob("*")) if (one / "train.txt").exists()]
        return inside[0] if inside else target


class MadeUp:
    """Tiny files of the same formats."""

    def __init__(self, folder):
        self.folder, chance = folder, random.Random(1)
        folder.mkdir()
        words = [f"w{i}" for i in range(20)]
        (folder / "wikitext-2").mkdir()
        for name, lines in (("train", 120), ("valid", 30), ("test", 30)):
            text = "".join(" ".join(words[(3 * i + j) % 20] for j in range(9)) + "\n" for i in range(lines))
            (folder / "wikitext-2" / f"{name}.txt").write_text(text)
        for name, count in (("cifar10_train", 96), ("cifar10_test", 32)):
            with open(folder / name, "wb") as file:
                for i in range(count):
                    noise = bytes(chance.randrange(90) for _ in range(3072))
                    file.write(struct.pack("B", i % 10) + bytes([240] * (200 + 200 * (i % 10))) +
                               noise[200 + 200 * (i % 10):])
        (folder / "vocabulary").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nday\n")
        rows = (f"{i},a {word} day,x,{mood}\n" for i in range(40)
                for word, mood in (("good", "positive"), ("bad", "negative"), ("odd", "neutral")))
        (folder / "tweets").write_text("textID,text,selected_text,sentiment\n" + "".join(rows))

    def __getitem__(self, name):
        return self.folder / name


class Workload:
    """`program`: of examples/; `python`: of examples/python, or None; `curve`: the name of the metric in the log."""

    def __init__(self, program, python, files, settings, quick, metrics, curve=None, ours_only=(), ranks=None):
        self.program, self.python, self.files = program, python, files
        self.settings, self.quick, self.metrics = settings, quick, metrics
        self.curve, self.ours_only, self.ranks = curve, ours_only, ranks

    def options(self, quick):
        return " ".join([self.quick if quick else self.settings, *self.ours_only])


IMAGES = {"--train": "cifar10_train", "--test": "cifar10_test"}
TWEETS = {"--tweets": "tweets", "--vocabulary": "vocabulary"}
TINY_RESNET = "--width 4 --epochs 2 --batch-size 16 --plain-images"
WORKLOADS = {
    "wikitext-2-lstm": Workload(
        "07_word_lm", "word_lm.py", {"--data": "wikitext-2"}, "--epochs 6 --wire fp16",
        "--epochs 2 --wire fp16 --width 8 --hidden 8 --batch-size 4 --length 10", ["test perplexity"], "perplexity"),
    "resnet18-cifar10": Workload(
        "08_resnet", "resnet.py", IMAGES, "--epochs 10", TINY_RESNET, ["test accuracy"], "accuracy"),
    "resnet18-cifar10-fp16-wire": Workload(
        "08_resnet", "resnet.py", IMAGES, "--epochs 10 --wire fp16", TINY_RESNET + " --wire fp16", ["test accuracy"],
        "accuracy"),
    "bert-pair": Workload(
        "06_tweet_sentiment", "tweets.py", TWEETS,
        "--compare --layers 12 --width 768 --length 64 --batch-size 16",
        "--compare --layers 6 --length 32 --batch-size 8",
        [f"{name}: {what}" for name in ("plain", "checkpoint", "budget of 39 %")
         for what in ("peak, MiB", "step, s", "step / plain")],
        ranks=1),
    "tweets": Workload(
        "06_tweet_sentiment", "tweets.py", TWEETS,
        "--layers 4 --width 256 --length 48 --batch-size 64 --epochs 3 --learning-rate 5e-4", "--epochs 2",
        ["held-out accuracy"], "accuracy"),
    "frozen-norms": Workload(
        "08_resnet", None, IMAGES, "--epochs 2 --learning-rate 0.01", TINY_RESNET,
        ["test accuracy", "drift of the statistics"],
        ours_only=("--freeze-norms", "--precision", "O2", "--finetune", "resnet18-cifar10-fp16-wire")),
}


def run(command, log, processes=1, resume=False):
    """Runs a program of Python on several processes, which meet in a file; all others start their own ranks."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as meeting, open(log, "a" if resume else "w", encoding="utf-8") as file:
        started = []
        for rank in range(processes):
            place = {"RANK": str(rank), "WORLD_SIZE": str(processes), "LOCKSTEP_MEETING": f"file://{meeting}/meeting"}
            started.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent,
                                            env=os.environ | dict(MALLOC) | (place if processes > 1 else {})))
        while any(process.poll() is None for process in started):
            if any(process.poll() for process in started):  # the others would wait for it
                for process in started:
                    process.kill()
            time.sleep(0.05)
        codes = [process.wait() for process in started]
    if any(codes):
        sys.exit(f"{' '.join(command)} ended with exit code {max(codes, key=abs)}:\n"
                 + "\n".join(log.read_text(encoding="utf-8").splitlines()[-20:]))


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))


def weights_of(run_folder):
    from safetensors.numpy import load_file

    newest = max(path for path in run_folder.glob("step-*") if path.name[-1].isdigit())
    return {name: value for file in newest.glob("model*.safetensors") for name, value in load_file(file).items()}


def drift(first, second):
    """The largest difference of a statistic of a norm."""
    before, after = weights_of(first), weights_of(second)
    names = [name for name in before if "running_" in name]
    if not names:
        sys.exit(f"{first}: has no statistics of norms")
    return max(float(abs(before[name] - after[name]).max()) for name in names)


class Runs:
    def __init__(self, options, data, folder):
        self.options, self.data, self.folder = options, data, folder

    def do(self, name, workload):
        """The rows of a workload, and its curves."""
        arguments = (workload.quick if self.options.quick else workload.settings).split()
        for flag, file in workload.files.items():
            arguments += [flag, self.data[file]]
        ranks = workload.ranks or self.options.ranks
        ours, python = self.folder / name, self.folder / f"{name}-python"
        build = self.options.build
        extra = [self.folder / word if word in WORKLOADS else word for word in workload.ours_only]
        result = self.results(
            "lockstep", ours, "compare.json" if "--compare" in arguments else "result.json",
            [build / "launcher" / "lockstep", "run", "-n", ranks, "--", build / "examples" / workload.program,
             *arguments, *extra, "--run", ours])
        peer = {}
        if workload.python:
            peer = self.results("python", python, "result.json",
                                [sys.executable, "-B", PROGRAMS / workload.python, *arguments, "--run", python], ranks)
        if result and "--finetune" in extra:
            result["drift of the statistics"] = drift(extra[-1], ours)
        rows = [self.row(name, metric, result[metric] if result else None, peer.get(metric))
                for metric in workload.metrics]
        return rows, self.curves(workload, ours if result else None, peer)

    def results(self, side, folder, file, command, processes=1):
        """What one side has found: now, or in its last run, if that ended well and had the same command; else {}."""
        text = " ".join(str(word) for word in [*command, "processes", processes]) + "\n"
        started, ended = folder / "started.txt", folder / "command.txt"

        def same(noted):
            return noted.exists() and noted.read_text(encoding="utf-8") == text

        if self.options.side in (None, side) and not (self.options.resume and same(ended)):
            resume = self.options.resume and same(started)
            if not resume:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                started.write_text(text, encoding="utf-8")
            run([*command, "--resume"] if resume else command, folder.with_suffix(".log"), processes, resume)
            started.rename(ended)
        return read_json(folder / file) if same(ended) else {}

    @staticmethod
    def row(name, metric, ours, python):
        return {"workload": name, "metric": metric, "ours": ours, "python": python,
                "relative": ours / python if ours is not None and python else None}

    @staticmethod
    def curves(workload, ours, peer):
        """Of what has been run: `ours` is a folder or None, `peer` empty or the results of Python."""
        curves = {}
        if workload.curve is not None and ours:
            log = [json.loads(line) for line in (ours / "log.jsonl").read_text(encoding="utf-8").splitlines()]
            name = f"validation/{workload.curve}"
            values = {row["update"]: row[name] for row in log if name in row}  # a resumed run validates once more
            curves["lockstep"] = list(values.values())
        if workload.curve is not None and peer:
            curves["Python"] = peer["curve"]
        return curves


def svg(title, curves):
    """A picture of the metric after each epoch."""
    width, height, left, bottom, top = 560, 320, 60, 48, 34
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values)
    span, epochs = (high - low) or 1.0, max(len(curve) for curve in curves.values())

    def at(epoch, value):
        x = left + (width - left - 20) * (epoch - 1) / max(epochs - 1, 1)
        return f"{x:.1f},{height - bottom - (height - bottom - top) * (value - low) / span:.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             'font-size="13">', f'<rect width="{width}" height="{height}" fill="white"/>',
             f'<text x="{left}" y="20">{title}</text>',
             f'<path d="M{left} {top} V{height - bottom} H{width - 20}" fill="none" stroke="#57606a"/>',
             f'<text x="{width / 2}" y="{height - 8}" text-anchor="middle">epoch (1 to {epochs})</text>']
    for value in (low, (low + high) / 2, high):
        y = at(1, value).split(",")[1]
        parts.append(f'<text x="{left - 6}" y="{y}" text-anchor="end">{value:.4g}</text>')
    for row, (name, curve) in enumerate(curves.items()):
        colour = {"lockstep": "#1f6feb", "Python": "#6e7781"}[name]
        line = " ".join(at(epoch, value) for epoch, value in enumerate(curve, 1))
        dash = ' stroke-dasharray="6 4"' if name == "Python" else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{width - 110}" y="{20 + 16 * row}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def table(rows, settings):
    lines = ["| workload | options | metric | lockstep | Python | lockstep / Python |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = ["-" if row[key] is None else f"{row[key]:.4g}" for key in ("ours", "python", "relative")]
        first = [row["workload"], settings.get(row["workload"], ""), row["metric"]]
        lines.append(f"| {' | '.join([*first, *cells])} |")
    return "\n".join(lines)


BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def documented(text):
    """What the document has, so that a workload can be run on a machine that has not run the others."""
    found = {"rows": [], "settings": {}}
    for line in text.split(BEGIN)[1].split(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] in ("workload", "---"):
            continue
        name, settings, metric, *numbers = cells
        ours, python, relative = (None if number == "-" else float(number) for number in numbers)
        found["settings"][name] = settings
        found["rows"].append({"workload": name, "metric": metric, "ours": ours, "python": python, "relative": relative})
    return found


def write_document(rows, curves, settings):
    page = ROOT / "docs" / "workloads.md"
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        sys.exit(f"{page}: the lines {BEGIN} and {END} are missing")
    pictures = []
    for name, curve in curves.items():
        if curve:
            (page.parent / f"workloads-{name}.svg").write_text(svg(f"{name}: {WORKLOADS[name].curve}", curve),
                                                               encoding="utf-8")
    for name in WORKLOADS:
        if (page.parent / f"workloads-{name}.svg").exists():
            pictures.append(f"![{name}](workloads-{name}.svg)")
    before, rest = text.split(BEGIN)
    measured = "\n\n".join([table(rows, settings), *pictures])
    page.write_text(f"{before}{BEGIN}\n{measured}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data", metavar="DIR",
                        help="folder of the data sets, compressed or not (data)")
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="NAME",
                        help="only this workload; may be repeated. One of " + ", ".join(WORKLOADS))
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="ranks, where the workload does not say (2)")
    parser.add_argument("--side", choices=("lockstep", "python"),
                        help="run only this side; rows take the other one from its newest run with the same options")
    parser.add_argument("--resume", action="store_true",
                        help="go on with runs of the same options that were interrupted; keep those that ended")
    parser.add_argument("--quick", action="store_true", help="tiny made-up data; writes DIR/workloads-quick.json")
    parser.add_argument("--document", action="store_true", help="write docs/workloads.md")
    parser.add_argument("--settings", action="append", default=[], metavar="NAME=OPTIONS",
                        help="other options of a workload, such as 'resnet18-cifar10=--epochs 1'")
    parser.add_argument("--list-targets", action="store_true", help="print what has to be built, and end")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    chosen = {name: workload for name, workload in WORKLOADS.items() if not options.only or name in options.only}
    if options.list_targets:
        print(" ".join(sorted({"lockstep_cli", *(workload.program for workload in chosen.values())})))
        return
    for changed in options.settings:
        name, settings = changed.split("=", 1)
        chosen[name].settings = settings
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)
        folder = temporary if options.quick else options.build / "workloads"
        data = MadeUp(temporary / "data") if options.quick else Data(options.data.resolve(), folder / "data")
        try:
            for workload in chosen.values():  # before hours of training
                for file in workload.files.values():
                    data[file]
        except Missing as error:
            print(error, file=sys.stderr)
            sys.exit(10)
        path = options.build / ("workloads-quick.json" if options.quick else "workloads.json")
        if options.quick:
            found = {"rows": [], "settings": {}}
        else:
            found = read_json(path) if path.exists() else documented((ROOT / "docs" / "workloads.md").read_text("utf-8"))
        curves, runs = {}, Runs(options, data, folder)
        for name, workload in chosen.items():
            print(f"{name} ...", flush=True)
            rows, curves[name] = runs.do(name, workload)
            found["rows"] = [row for row in found["rows"] if row["workload"] != name] + rows
            found["settings"][name] = f"`{workload.options(options.quick)}`"
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(table(found["rows"], found["settings"]))
        if options.document:
            write_document(found["rows"], curves, found["settings"])


if __name__ == "__main__":
    main()
