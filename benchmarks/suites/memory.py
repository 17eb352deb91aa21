"""Peak memory of a Trainer against what its arena must hold and one bucket; activations."""

from harness import measure
from harness.launch import Job, program
from harness.measure import Sample
from harness.rows import compare

from . import activation

PROGRAMS = ("memory", "activation")


def run(measurement, only):
    rows = []
    for launch, ranks in (("solo", 1), ("mpi", 2)):
        for wire in ("fp16", "fp32"):
            for accumulate in (1, 2):
                name = f"{ranks}-rank {wire} accumulate {accumulate}"
                if not only.search(name):
                    continue
                job = Job(launch, program(measurement.build, "memory", wire, accumulate))
                (sample,) = measurement.alternate({name: job}, measure.each).values()
                bound = [arena + bucket for arena, bucket
                         in zip(sample.notes["arena"], sample.notes["bucket"])]
                rows.append(compare("memory", name, sample.noted("peak"), Sample.of(bound),
                                    "bound", "MB", 1.0))
    return rows + activation.run(measurement, only)
