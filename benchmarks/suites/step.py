"""Training steps of the three reference models, two ranks of one thread, and of one rank alone; of one model also
more ranks, which share the two cores."""

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
CROWDED = {"lstm": (3, 4)}  # ranks
CROWDED_TARGET = 1.0
ONE_RANK_PEERS = {"libtorch": 1.0, "libtorch-fused": None}


def _jobs(build, model, ranks):
    """The bound is the same program as ours, started alone on each rank."""
    def step(launch, variant, alias=""):
        return Job(launch, program(build, "step", variant, model, STEPS), alias or variant, ranks)

    def python(variant):
        return Job("group", peer("step_ddp.py", variant, model, STEPS), variant, ranks)

    jobs = [step("mpi", "ours-fp16"), step("group", "ours-fp16", "bound-fp16"),
            step("mpi", "ours-fp32"), step("group", "ours-fp32", "bound-fp32"),
            step("mpi", "libtorch-mpi"), step("mpi", "libtorch-mpi-fused"),
            python("python-ddp"), python("python-ddp-fp16")]
    if ranks == 2:
        jobs += [step("solo", "ours-fp32", "one-rank"), step("solo", "libtorch"), step("solo", "libtorch-fused")]
    return {f"{_name(model, ranks)} {job.variant}": job for job in jobs}


def _samples(measurement, model, ranks):
    measured = measurement.alternate(_jobs(measurement.build, model, ranks), measure.each)
    samples = {variant: sample for (_, variant), sample in measured.items()}
    counts = {variant: sample.notes["parameters"][0] for variant, sample in samples.items()}
    if len(set(counts.values())) != 1:
        raise Failed(f"{model} is not the same model everywhere: parameters are {counts}")
    return samples


def _name(model, ranks):
    return model if ranks == 2 else f"{model} {ranks} ranks"


def _names(model, ranks):
    """The row of each variant of ours."""
    name = _name(model, ranks)
    names = {"ours-fp16": name, "ours-fp32": f"{name} fp32-wire"}
    return {**names, "one-rank": f"one-rank {model}"} if ranks == 2 else names


def _targets(variant, model, ranks):
    """{peer: ratio}"""
    if variant == "one-rank":
        return ONE_RANK_PEERS
    if ranks > 2:
        return {name: None if name == "bound" else CROWDED_TARGET for name in PEERS}
    return {name: targets[MODELS.index(model)] for name, targets in PEERS.items()}


def _rows(measurement, model, ranks):
    samples = _samples(measurement, model, ranks)
    rows = []
    for variant, name in _names(model, ranks).items():
        for peer_name, target in _targets(variant, model, ranks).items():
            peer_sample = samples[variant.replace("ours", "bound") if peer_name == "bound" else peer_name]
            rows.append(compare("step", name, samples[variant], peer_sample, peer_name, "ms",
                                target))
    return rows


def run(measurement, only):
    rows = []
    for model in MODELS:
        for ranks in (2, *CROWDED.get(model, ())):
            if any(map(only.search, _names(model, ranks).values())):
                rows += _rows(measurement, model, ranks)
    return [row for row in rows if only.search(row.name)]
