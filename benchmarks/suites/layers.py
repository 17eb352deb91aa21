"""Fused layers beside LibTorch's operators: forward and backward of 2048 rows of 512, one thread."""

from harness import measure
from harness.launch import Job, program
from harness.rows import compare

PROGRAMS = ("layers",)


def run(measurement, only):
    job = Job("solo", program(measurement.build, "layers"))
    samples = measurement.alternate({"ours and libtorch": job}, measure.each)
    names = dict.fromkeys(name for name, _ in samples)
    return [compare("layers", name, samples[name, "ours"], samples[name, "libtorch"], "libtorch",
                    "ms") for name in names if only.search(name)]
