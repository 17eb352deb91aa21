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
    return rows + _modes(measurement, only) + activation.run(measurement, only)


def _modes(measurement, only):
    """The bytes of a rank beside those of a plain run."""
    if not only.search("2-rank fp32 sharded shared"):
        return []
    jobs = {mode: Job("mpi", program(measurement.build, "memory", "fp32", 1, *([mode] if mode else [])), mode)
            for mode in ("", "sharded", "shared")}
    samples = {variant: sample for (_, variant), sample in measurement.alternate(jobs, measure.each).items()}
    plain = samples["fp32"].noted("peak")
    return [compare("memory", f"2-rank fp32 {mode}", samples[mode].noted("peak"), plain, "plain", "MB")
            for mode in ("sharded", "shared")]
