"""Models of torch.export beside the same models written in C++: the cost of calling operators, one thread."""

import tempfile

from harness import measure
from harness.launch import Job, peer, program, run as start
from harness.rows import compare

PROGRAMS = ("exported",)

# Of the time of the model that is written in C++.
TARGET = 1 / 1.15


def run(measurement, only):
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        start(Job("free", peer("export_models.py", folder)), measurement.build)
        job = Job("solo", program(measurement.build, "exported", folder))
        samples = measurement.alternate({"ours and libtorch": job}, measure.each)
    names = dict.fromkeys(name for name, _ in samples)
    return [compare("exported", name, samples[name, "ours"], samples[name, "libtorch"], "libtorch",
                    "us", TARGET) for name in names if only.search(name)]
