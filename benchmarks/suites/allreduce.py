"""All-reduce of two ranks, in the shared window in place and of private tensors ("copied"); and of more ranks, which
share the two cores, in the window."""

from harness import intel, measure
from harness.launch import Job, peer, program
from harness.rows import absent, against, compare

PROGRAMS = ("allreduce",)

TYPES = ("fp16", "fp32", "bf16")
SIZES = ("4KB", "64KB", "1MB", "32MB")
CROWDED_RANKS = (3, 4)
# For each round: a small tensor takes a few milliseconds in all, and what it takes depends on how near to each other
# the machine has put its cores at that moment.
PAIR_RUNS = 4
CROWDED_TYPES = ("fp16", "fp32")


def _unit(size):
    return "ms" if size == "32MB" else "us"


def _mpi(dtype):
    return "mpi" if dtype == "fp32" else "mpi-custom-op"


def _intel_variants(dtype):
    """{variant: library}: Intel's libraries have an fp16 type, but its sum may be slower than a user's."""
    variants = {"fp32": {"intel-mpi": "intel-mpi", "oneccl": "oneccl"},
                "fp16": {"intel-mpi": "intel-mpi", "intel-mpi-custom-op": "intel-mpi", "oneccl": "oneccl"}}
    return variants.get(dtype, {})


def _intel_rows(build, samples, name, ours, dtype, size):
    rows = []
    for variant, library in _intel_variants(dtype).items():
        theirs = samples.get((f"{dtype} {size}", variant))
        if theirs is not None:
            rows.append(compare("allreduce", name, ours, theirs, variant, _unit(size), 1.0))
        elif intel.is_installed(build, library):
            rows.append(absent("allreduce", name, ours, variant, _unit(size), "does not run here"))
        else:
            package = intel.LIBRARIES[library].package
            rows.append(absent("allreduce", name, ours, variant, _unit(size), f"not installed: {package}", optional=True))
    return rows


def _window_rows(samples, dtype, size):
    """Targets: at 32 MB against the bound and the peers, 4 KB against MPI, 64 KB in 10 us."""
    large = size == "32MB" and dtype != "bf16"
    targets = {"bound": 0.8 if large else None,
               _mpi(dtype): 4.0 if large else 1.0 if size == "4KB" else None,
               "gloo": 12.0 if large else None}
    name = f"{dtype} {size}"
    ours = samples[name, "ours"]
    rows = [compare("allreduce", name, ours, samples[name, variant], variant, _unit(size), target)
            for variant, target in targets.items()]
    if size == "64KB":
        rows.append(against("allreduce", name, ours, 10.0, "us", 1.0))
    return rows


def _pair_names():
    return [f"{dtype} {size}{form}" for dtype in TYPES for size in SIZES for form in ("", " copied")]


def _pair_rows(measurement):
    build = measurement.build
    jobs = {"ours, mpi and bound": Job("mpi", program(build, "allreduce")),
            "gloo": Job("group", peer("allreduce_gloo.py")), **intel.jobs(build)}
    samples = measurement.with_rounds(PAIR_RUNS * measurement.rounds).alternate(jobs, measure.together)
    rows = []
    for dtype in TYPES:
        for size in SIZES:
            name, copied = f"{dtype} {size}", f"{dtype} {size} copied"
            ours, ours_copied = samples[name, "ours"], samples[name, "ours-copied"]
            rows += _window_rows(samples, dtype, size)
            rows += _intel_rows(build, samples, name, ours, dtype, size)
            rows.append(compare("allreduce", copied, ours_copied, samples[name, _mpi(dtype)], _mpi(dtype), _unit(size),
                                1.0))
            rows += _intel_rows(build, samples, copied, ours_copied, dtype, size)
    return rows


def _crowded_names(ranks):
    """{row: what the programs call it}"""
    return {f"{ranks} ranks {dtype} {size}": (dtype, size) for dtype in CROWDED_TYPES for size in SIZES}


def _crowded_rows(measurement, ranks):
    jobs = {f"ours and mpi, {ranks} ranks": Job("mpi", program(measurement.build, "allreduce"), ranks=ranks),
            f"gloo, {ranks} ranks": Job("group", peer("allreduce_gloo.py"), ranks=ranks)}
    samples = measurement.alternate(jobs, measure.together)
    return [compare("allreduce", row, samples[f"{dtype} {size}", "ours"], samples[f"{dtype} {size}", variant], variant,
                    _unit(size), 1.0)
            for row, (dtype, size) in _crowded_names(ranks).items() for variant in (_mpi(dtype), "gloo")]


def run(measurement, only):
    rows = []
    if any(map(only.search, _pair_names())):
        rows += _pair_rows(measurement)
    for ranks in CROWDED_RANKS:
        if any(map(only.search, _crowded_names(ranks))):
            rows += _crowded_rows(measurement, ranks)
    return [row for row in rows if only.search(row.name)]
