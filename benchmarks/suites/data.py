"""The wait for data of a training loop: ResNet-18 on augmented images of CIFAR's size, on one core, which the worker
threads share with the step."""

import statistics

from harness import measure
from harness.launch import Job, program
from harness.rows import LIMIT, compare, counted

PROGRAMS = ("loading",)

ALONE = "loading alone"
MODEL = "resnet18"
TRAINED = {f"{MODEL}, {workers} workers": f"{workers} workers" for workers in (0, 1, 2)}
LIMIT_PERCENT = 2.0


def _mean(records):
    """Of a run: with worker threads most waits are nothing and a few are long."""
    return [statistics.mean(measure.each(records))]


def _share(wait, step):
    return 100.0 * wait.median / (wait.median + step.median)


def run(measurement, only):
    if not any(map(only.search, [*TRAINED, ALONE])):
        return []
    job = Job("solo", program(measurement.build, "loading"))
    samples = measurement.alternate({"loading": job}, _mean)
    rows = [counted("data", row, _share(samples[name, "wait"], samples[name, "step"]), LIMIT_PERCENT, LIMIT, "%", 1.0)
            for row, name in TRAINED.items()]
    rows.append(compare("data", ALONE, samples[ALONE, "wait"], samples["0 workers", "step"], "step", "ms"))
    return [row for row in rows if only.search(row.name)]
