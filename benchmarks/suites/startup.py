"""How long a job takes from the launcher's start until all of its ranks have met, on two cores: the processor time of
loading the libraries, which all ranks share, is most of it."""

from harness import measure
from harness.launch import Job, peer, program
from harness.rows import compare

PROGRAMS = ("startup",)

RANKS = (2, 4, 8, 16, 32, 64)
PYTHON_RANKS = 16  # more need more memory than such a machine has

# Of the time of a program that loads the same libraries and only calls MPI_Init.
TARGET = 0.9


def run(measurement, only):
    rows = []
    for ranks in RANKS:
        name = f"{ranks} ranks"
        if not only.search(name):
            continue
        jobs = {variant: Job("mpi", program(measurement.build, "startup", variant), ranks=ranks)
                for variant in ("ours", "mpi")}
        if ranks <= PYTHON_RANKS:
            jobs["python-gloo"] = Job("group", peer("startup_gloo.py"), ranks=ranks)
        # The first job of so many ranks pays for memory and files that a virtual machine must get from its host.
        measurement.alternate({f"{name}, not counted": jobs["mpi"]}, measure.together)
        samples = measurement.alternate({f"{name}, {variant}": job for variant, job in jobs.items()}, measure.together)
        rows += [compare("startup", name, samples["start", "ours"], samples["start", variant], variant, "ms",
                         TARGET if variant == "mpi" else 1.0)
                 for variant in jobs if variant != "ours"]
    return rows
