"""Training steps of the three reference models, two ranks of one thread, and of one rank alone."""

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import compare

PROGRAMS = ("step",)

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


def _names(model):
    """The row of each variant of ours."""
    return {"ours-fp16": model, "ours-fp32": f"{model} fp32-wire", "one-rank": f"one-rank {model}"}


def _rows(model, samples):
    index = MODELS.index(model)
    rows = []
    for variant, name in _names(model).items():
        wire = variant.split("-")[1]
        peers = (ONE_RANK_PEERS if variant == "one-rank"
                 else {peer_name: targets[index] for peer_name, targets in PEERS.items()})
        for peer_name, target in peers.items():
            peer_sample = samples[f"bound-{wire}" if peer_name == "bound" else peer_name]
            rows.append(compare("step", name, samples[variant], peer_sample, peer_name, "ms",
                                target))
    return rows


def run(measurement, only):
    wanted = [model for model in MODELS if any(map(only.search, _names(model).values()))]
    rows = [row for model in wanted for row in _rows(model, _samples(measurement, model))]
    return [row for row in rows if only.search(row.name)]
