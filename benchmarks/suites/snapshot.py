"""Saving and loading 176 MB, against the plain file, the copy, torch::save and Python's DCP, and
what saving costs a run.

torch::save neither waits for the disk nor makes digests; torch::load and DCP check none. So loading
against them has no target. Against the plain file one thread reads every byte twice, since all
digests are checked before the first target changes; two ranks share the checking.
"""

from harness import measure
from harness.launch import Job, peer, program
from harness.rows import compare

PROGRAMS = ("snapshot", "snapshot_ranks")

ROWS = {"save 176 MB": (("bound", 0.8), ("torch::save", None), ("python-dcp", 0.8)),
        "load 176 MB": (("bound", 0.8), ("torch::load", None), ("python-dcp", None)),
        "load 176 MB, 2 ranks": (("bound", 0.8),),
        "stall 176 MB": (("bound", 1 / 1.1), ("python-dcp", 1.0)),
        "10 updates, one save": (("bound", 1 / 1.035),)}


def _jobs(build):
    """The rows that each job measures, and the job."""
    return {"ours, bounds and torch::save":
                (("save 176 MB", "load 176 MB", "stall 176 MB"),
                 Job("solo", program(build, "snapshot"))),
            "python-dcp":
                (("save 176 MB", "load 176 MB", "stall 176 MB"),
                 Job("solo", peer("snapshot_dcp.py"))),
            "load on two ranks":
                (("load 176 MB, 2 ranks",), Job("mpi", program(build, "snapshot_ranks", "load"))),
            "updates with and without a save":
                (("10 updates, one save",), Job("mpi", program(build, "snapshot_ranks", "save")))}


def run(measurement, only):
    jobs = {what: job for what, (names, job) in _jobs(measurement.build).items()
            if any(map(only.search, names))}
    samples = measurement.alternate(jobs, measure.each)
    return [compare("snapshot", name, samples[name, "ours"], samples[name, taker], taker, "ms",
                    target)
            for name, peers in ROWS.items() if only.search(name) for taker, target in peers]
