"""Saving and loading 176 MB, against the plain file, the copy, and torch::save.

torch::save neither waits for the disk nor makes digests, torch::load checks none: no target.
"""

from harness import measure
from harness.launch import Job, program
from harness.rows import compare

ROWS = {"save 176 MB": (("bound", 0.8), ("torch::save", None)),
        "load 176 MB": (("bound", 0.8), ("torch::load", None)),
        "stall 176 MB": (("bound", 1 / 1.1),)}


def run(measurement, only):
    jobs = {"ours, bounds and torch::save": Job("solo", program(measurement.build, "snapshot"))}
    samples = measurement.alternate(jobs, measure.each)
    return [compare("snapshot", name, samples[name, "ours"], samples[name, peer], peer, "ms", target)
            for name, peers in ROWS.items() if only.search(name) for peer, target in peers]
