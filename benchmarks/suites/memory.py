"""Peak memory of a Trainer against what its arena must hold and one bucket; activations."""

from harness import measure
from harness.launch import Job, peer, program
from harness.measure import Sample
from harness.rows import compare

from . import activation
from .step import SHARDING_PEERS

PROGRAMS = ("memory", "activation")
MODELS = ("mlp", "gpt", "resnet18")


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
    """The bytes of a rank, memory that ranks share by halves, beside those of a plain run."""
    rows = []
    for model in MODELS:
        names = {mode: f"2-rank fp32 {mode}" + ("" if model == "mlp" else f" {model}") for mode in ("sharded", "shared")}
        if not any(map(only.search, names.values())):
            continue
        jobs = {f"{model} {mode}": Job("mpi", program(measurement.build, "memory", "fp32", 1, mode, model), mode)
                for mode in ("plain", *names)}
        if model != "mlp":
            jobs |= {f"{model} {variant}": Job("group", peer("step_ddp.py", variant, model, 3), variant, optional=True)
                     for variant in SHARDING_PEERS}
        samples = {variant: sample for (_, variant), sample in measurement.alternate(jobs, measure.each).items()}
        plain = samples["plain"].noted("peak")
        rows += [compare("memory", name, samples[mode].noted("peak"), plain, "plain", "MB")
                 for mode, name in names.items()]
        rows += [compare("memory", names["shared"], samples["shared"].noted("peak"), samples[variant].noted("peak"), variant, "MB")
                 for variant in SHARDING_PEERS if variant in samples]
    return rows
