"""Two hosts with a link of limited rate between them: all-reduces, what sharded optimizers send, training steps, and what
`lockstep predict` says of them. The hosts are network namespaces of this machine, so the link is real TCP, and each host has one core."""

import json
import pathlib
import re
import statistics
import subprocess
import tempfile

from harness import measure
from harness.launch import BENCHMARKS, Failed, Job, peer, program
from harness.rows import against, compare, predicted
from suites.step import MALLOC, MODELS

PROGRAMS = ("allreduce", "shares", "step")
TARGETS = ("lockstep_cli",)

UNLIMITED = "100gbit"  # faster than a core sends
LINKS = {"1gbit": 1.0, "10gbit": 10.0}  # gigabits per second, each way
LAYOUTS = {"2 x 1": 2, "2 x 2": 4}  # hosts x ranks of each: ranks
SIZES = {"1MB": (1 << 20, "us"), "32MB": (32 << 20, "ms")}
MPI = {"fp16": "mpi-custom-op", "fp32": "mpi"}
SHARES = {"reduce_scatter": MPI, "all_gather": {"fp16": "mpi", "fp32": "mpi"}}  # the peers
# What ranks share out: the variant, and the options of `lockstep predict`.
FORECASTS = {"prediction": ("ours-fp16", ()), "sharded prediction": ("sharded-fp16", ("--shard-optimizer",)),
             "shared prediction": ("shared-fp16", ("--shard-optimizer", "--share-weights"))}
STEPS = 16  # a round of local-16
STEP_PEERS = ("libtorch-mpi-fused", "python-ddp-fp16")
LINK_TARGET, PREDICTION_TARGET = 0.9, 0.93


def unavailable():
    """Why this suite cannot run here; empty if it can."""
    tried = subprocess.run([BENCHMARKS / "hosts.sh", "1gbit", "1", "0", "1", "true", "true"], capture_output=True,
                           text=True, check=False)
    return "" if tried.returncode == 0 else tried.stderr.strip() or "two hosts cannot be made"


def mean_of_calls(records):
    """The mean time of a call, so that the exchange of a round counts for all its updates."""
    return [statistics.mean(measure.each(records))]


class Place:
    """Two hosts, with a number of ranks on each, and the link between them."""

    def __init__(self, measurement, link, layout):
        self.measurement, self.build, self.link = measurement, measurement.build, link
        self.name, self.ranks, self.is_crowded = f"{link} {layout}", LAYOUTS[layout], LAYOUTS[layout] > 2

    def job(self, command, variant="", environment=()):
        return Job("hosts", command, variant, self.ranks, environment=environment, link=self.link)

    def reductions(self):
        jobs = {f"{self.name} all-reduce": self.job(program(self.build, "allreduce", 0.5)),
                f"{self.name} all-reduce of gloo": self.job(peer("allreduce_gloo.py"))}
        if not self.is_crowded:
            jobs[f"{self.name} TCP alone"] = self.job(peer("link_tcp.py"))
        return self.measurement.alternate(jobs, measure.together)

    def reduction_rows(self, samples):
        rows = []
        for dtype, mpi in MPI.items():
            for size, (count, unit) in SIZES.items():
                name, ours = f"{self.name} {dtype} {size}", samples[f"{dtype} {size}", "ours"]
                rows += [compare("nodes", name, ours, samples[f"{dtype} {size}", variant], variant, unit, 1.0)
                         for variant in (mpi, "gloo")]
                # Each host sends as many bytes as a rank has, and receives as many at the same time.
                limit = 8 * count / (LINKS[self.link] * (1e6 if unit == "ms" else 1e3))
                target = LINK_TARGET if size == "32MB" and not self.is_crowded else None
                rows.append(against("nodes", name, ours, limit, unit, target))
                if not self.is_crowded:
                    rows.append(compare("nodes", name, ours, samples[size, "tcp"], "tcp", unit, target))
        return rows

    def share_names(self):
        return [f"{self.name} {dtype} {verb} 32MB" for verb, peers in SHARES.items() for dtype in peers]

    def share_rows(self):
        job = self.job(program(self.build, "shares"))
        samples = self.measurement.alternate({f"{self.name} shares": job}, measure.together)
        rows = []
        for verb, peers in SHARES.items():
            for dtype, mpi in peers.items():
                name, ours = f"{self.name} {dtype} {verb} 32MB", samples[f"{dtype} {verb}", "ours"]
                rows.append(compare("nodes", name, ours, samples[f"{dtype} {verb}", mpi], mpi, "ms", 1.0))
                # A host sends at least half of the bucket, and receives as much at the same time.
                rows.append(against("nodes", name, ours, 8 * SIZES["32MB"][0] / 2 / (LINKS[self.link] * 1e6), "ms"))
        return rows

    def steps(self, model):
        """{variant: Sample} of single updates; of lockstep alone where ranks share cores."""
        jobs = [self.ours("ours-fp16", model)]
        if not self.is_crowded:
            jobs += [self.job(program(self.build, "step", "libtorch-mpi-fused", model, STEPS), "libtorch-mpi-fused",
                              MALLOC),
                     self.job(peer("step_ddp.py", "python-ddp-fp16", model, STEPS), "python-ddp-fp16", MALLOC)]
        return self.alternate(model, jobs, measure.each)

    def rounds(self, model):
        """{variant: Sample} of an update in the mean of a round."""
        return self.alternate(model, [self.ours(variant, model) for variant in ("ours-fp16", "local-16")], mean_of_calls)

    def ours(self, variant, model):
        return self.job(program(self.build, "step", variant, model, STEPS), variant)

    def alternate(self, model, jobs, seconds_of):
        measured = self.measurement.alternate({f"{self.name} {model} {job.variant}": job for job in jobs}, seconds_of)
        return {variant: sample for (_, variant), sample in measured.items()}

    def forecast_rows(self, model, samples, forecasts):
        """One for each of `forecasts`: {name: seconds}; `samples` has the variants that were measured already."""
        rows = []
        for name, seconds in forecasts.items():
            variant = FORECASTS[name][0]
            measured = samples if variant in samples else self.alternate(model, [self.ours(variant, model)], measure.each)
            rows.append(predicted("nodes", f"{self.name} {model} {name}", measured[variant], seconds, "ms", PREDICTION_TARGET))
        return rows

    def step_rows(self, model, forecasts):
        name, samples = f"{self.name} {model}", self.steps(model)
        rows = [compare("nodes", name, samples["ours-fp16"], samples[variant], variant, "ms", 1.0)
                for variant in STEP_PEERS if variant in samples]
        if not self.is_crowded:
            rounds = self.rounds(model)
            rows.append(compare("nodes", f"{name} local-16", rounds["local-16"], rounds["ours-fp16"], "synchronous", "ms",
                                1.0))
        return [*rows, *self.forecast_rows(model, samples, forecasts)]

    def network(self, reductions, on_a_core, unlimited):
        """The file that `lockstep predict` reads. The rate of the link is nominal, the rest is measured."""
        per_host = self.ranks // 2  # on one core, which sends what all of them send
        megabytes = SIZES["32MB"][0] / 1e6
        found = {"ranks_per_node": per_host,
                 "link": {"latency_us": reductions["fp16 4KB", "ours"].median * 1e6,  # one round
                          "gigabits_per_second": LINKS[self.link],
                          "processor_us_per_megabyte":
                              per_host * unlimited["fp16 32MB", "ours"].median * 1e6 / megabytes}}
        if self.is_crowded:
            found["node"] = {"latency_us": on_a_core["fp16 4KB", "ours"].median * 1e6,
                             "gigabytes_per_second": SIZES["32MB"][0] / on_a_core["fp16 32MB", "ours"].median / 1e9}
        return found


def forecast_of(build, record, network, ranks, options=()):
    """Seconds of an update, by `lockstep predict`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(network, file)
        file.flush()
        done = subprocess.run([build / "launcher" / "lockstep", "predict", "--ranks", str(ranks), "--network", file.name,
                               *options, record], capture_output=True, text=True, check=False)
    row = re.search(rf"^ *{ranks} +\d+ +([\d.]+) ", done.stdout, re.MULTILINE)
    if done.returncode != 0 or row is None:
        raise Failed(f"lockstep predict: {done.stdout}{done.stderr}")
    return float(row.group(1)) / 1e3


def records_of(measurement, model, ranks, folder):
    """Steps of `ranks` processes that do not communicate, one file each, as `lockstep predict` reads them."""
    path = pathlib.Path(folder) / f"{model}-{ranks}.json"
    job = Job("group", program(measurement.build, "step", "ours-fp16", model, STEPS), "recorded", ranks,
              environment=(("LOCKSTEP_BENCH_TRACE", str(path)),))
    measurement.alternate({f"{model} recorded, {ranks} ranks": job}, measure.each)
    return [path.with_name(f"{path.name}.{rank}") for rank in range(ranks)]


def run(measurement, only):
    """All of a place is measured where one of its rows is wanted: a prediction needs the figures of its network."""
    rows = []
    on_a_core, unlimited = {}, {}
    for link in LINKS:
        for layout, ranks in LAYOUTS.items():
            place = Place(measurement, link, layout)
            if any(map(only.search, place.share_names())):
                rows += place.share_rows()
            models = [model for model in MODELS
                      if any(only.search(f"{place.name} {model}{row}") for row in ("", " local-16", *(f" {name}" for name in FORECASTS)))]
            if not models and not any(only.search(f"{place.name} {dtype} {size}") for dtype in MPI for size in SIZES):
                continue
            reductions = place.reductions()
            rows += place.reduction_rows(reductions)
            if place.is_crowded and not on_a_core:
                command = program(measurement.build, "allreduce", 0.5, "crowded")
                on_a_core = measurement.alternate({"all-reduce on one core": Job("mpi", command, shares_core=True)},
                                                  measure.together)
            if models and not unlimited:
                job = Place(measurement, UNLIMITED, "2 x 1").job(program(measurement.build, "allreduce", 0.5))
                unlimited = measurement.alternate({f"{UNLIMITED} all-reduce": job}, measure.together)
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
                for model in models:
                    records = records_of(measurement, model, ranks, folder)
                    network = place.network(reductions, on_a_core, unlimited)
                    forecasts = {name: max(forecast_of(measurement.build, one, network, ranks, options) for one in records)
                                 for name, (_, options) in FORECASTS.items() if place.is_crowded or name != "shared prediction"}
                    rows += place.step_rows(model, forecasts)
    return [row for row in rows if only.search(row.name)]
