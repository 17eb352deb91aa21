"""All-reduce of two ranks: in the shared window in place, and of private tensors ("copied")."""

from harness import measure
from harness.launch import Job, peer, program
from harness.rows import against, compare

PROGRAMS = ("allreduce",)

TYPES = ("fp16", "fp32", "bf16")
SIZES = ("4KB", "64KB", "1MB", "32MB")


def _unit(size):
    return "ms" if size == "32MB" else "us"


def _window_rows(name, dtype, size, take):
    """Targets: at 32 MB against the bound and the peers, 4 KB against MPI, 64 KB in 10 us."""
    mpi = "mpi" if dtype == "fp32" else "mpi-custom-op"
    large = size == "32MB" and dtype != "bf16"
    targets = {"bound": 0.8 if large else None,
               mpi: 4.0 if large else 1.0 if size == "4KB" else None,
               "gloo": 12.0 if large else None}
    ours = take(name, "ours")
    rows = [compare("allreduce", name, ours, take(name, variant), variant, _unit(size), target)
            for variant, target in targets.items()]
    if size == "64KB":
        rows.append(against("allreduce", name, ours, 10.0, "us", 1.0))
    return rows


def run(measurement, only):
    jobs = {"ours, mpi and bound": Job("mpi", program(measurement.build, "allreduce")),
            "gloo": Job("pair", peer("allreduce_gloo.py"))}
    samples = measurement.alternate(jobs, measure.together)

    def take(name, variant):
        return samples[name, variant]

    rows = []
    for dtype in TYPES:
        for size in SIZES:
            name = f"{dtype} {size}"
            mpi = "mpi" if dtype == "fp32" else "mpi-custom-op"
            rows += _window_rows(name, dtype, size, take)
            rows.append(compare("allreduce", name + " copied", take(name, "ours-copied"),
                                take(name, mpi), mpi, _unit(size), 1.0))
    return [row for row in rows if only.search(row.name)]
