"""Training steps of the three reference models, two ranks of one thread, and of one rank alone."""

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import compare

STEPS = 12
MODELS = ("lstm", "gpt", "resnet18")
# Ratio that each peer must be beaten by: lstm, gpt, resnet18.
PEERS = {"bound": (0.97, 0.97, 0.97),
         "python-ddp": (1.07, 1.15, 1.15),
         "python-ddp-fp16": (1.07, 1.15, 1.15),
         "libtorch-mpi": (1.2, 1.05, 1.12),
         "libtorch-mpi-fused": (None, None, None)}
ONE_RANK_PEERS = {"libtorch": 1.0, "libtorch-fused": None}


def _jobs(build, model):
    """The bound is the same program as ours, started twice alone."""
    def step(launch, variant, alias=""):
        return Job(launch, program(build, "step", variant, model, STEPS), alias or variant)

    def python(variant):
        return Job("pair", peer("step_ddp.py", variant, model, STEPS), variant)

    jobs = (step("mpi", "ours-fp16"), step("pair", "ours-fp16", "bound-fp16"),
            step("mpi", "ours-fp32"), step("pair", "ours-fp32", "bound-fp32"),
            step("mpi", "libtorch-mpi"), step("mpi", "libtorch-mpi-fused"),
            python("python-ddp"), python("python-ddp-fp16"),
            step("solo", "ours-fp32", "one-rank"), step("solo", "libtorch"),
            step("solo", "libtorch-fused"))
    return {f"{model} {job.variant}": job for job in jobs}


def _samples(measurement, model):
    measured = measurement.alternate(_jobs(measurement.build, model), measure.each)
    samples = {variant: sample for (_, variant), sample in measured.items()}
    counts = {variant: sample.notes["parameters"][0] for variant, sample in samples.items()}
    if len(set(counts.values())) != 1:
        raise Failed(f"{model} is not the same model everywhere: parameters are {counts}")
    return samples


def _rows(model, samples):
    index = MODELS.index(model)
    rows = []
    for wire in ("fp16", "fp32"):
        name = model if wire == "fp16" else f"{model} fp32-wire"
        for variant, targets in PEERS.items():
            peer_sample = samples[f"bound-{wire}" if variant == "bound" else variant]
            rows.append(compare("step", name, samples[f"ours-{wire}"], peer_sample, variant, "ms",
                                targets[index]))
    for variant, target in ONE_RANK_PEERS.items():
        rows.append(compare("step", f"one-rank {model}", samples["one-rank"], samples[variant],
                            variant, "ms", target))
    return rows


def run(measurement, only):
    return [row for model in MODELS if only.search(model)
            for row in _rows(model, _samples(measurement, model))]
