"""Training steps of the three reference models, two ranks of one thread, and of one rank alone."""

import ctypes.util

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import absent, compare

PROGRAMS = ("step",)

STEPS = 12
MODELS = ("lstm", "gpt", "resnet18")
# Ratio that each peer must be beaten by: lstm, gpt, resnet18.
PEERS = {"bound": (0.97, 0.97, 0.97),
         "python-ddp": (1.07, 1.15, 1.15),
         "python-ddp-fp16": (1.07, 1.15, 1.15),
         "libtorch-mpi": (1.2, 1.05, 1.12),
         "libtorch-mpi-fused": (None, None, None),
         "python-ddp-malloc": (1.05, 1.05, 1.05),
         "python-ddp-jemalloc": (1.05, 1.05, 1.05),
         "python-ddp-compiled": (None, None, None),
         "libtorch-mpi-fused-malloc": (1.0, 1.0, 1.0)}
ONE_RANK_PEERS = {"libtorch": 1.0, "libtorch-fused": None, "libtorch-fused-malloc": 1.0}

# glibc keeps freed memory, as a Runtime that owns its program asks of it (mallopt).
MALLOC = (("MALLOC_MMAP_THRESHOLD_", str(1 << 30)), ("MALLOC_TRIM_THRESHOLD_", str(1 << 30)))
# The settings of PyTorch's tuning guide for jemalloc.
JEMALLOC = (("MALLOC_CONF", "oversize_threshold:1,background_thread:true,metadata_thp:auto,"
             "dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000"),)


def _jemalloc():
    """Its settings, or None where libjemalloc2 is not installed."""
    library = ctypes.util.find_library("jemalloc")
    return JEMALLOC + (("LD_PRELOAD", library),) if library else None


def _jobs(build, model):
    """The bound is the same program as ours, started twice alone."""
    def step(launch, variant, alias="", environment=()):
        return Job(launch, program(build, "step", variant, model, STEPS), alias or variant,
                   environment=environment)

    def python(variant, alias="", environment=(), optional=False):
        return Job("pair", peer("step_ddp.py", variant, model, STEPS), alias or variant, optional,
                   environment)

    jobs = [step("mpi", "ours-fp16"), step("pair", "ours-fp16", "bound-fp16"),
            step("mpi", "ours-fp32"), step("pair", "ours-fp32", "bound-fp32"),
            step("mpi", "libtorch-mpi"), step("mpi", "libtorch-mpi-fused"),
            step("mpi", "libtorch-mpi-fused", "libtorch-mpi-fused-malloc", MALLOC),
            python("python-ddp"), python("python-ddp-fp16"),
            python("python-ddp", "python-ddp-malloc", MALLOC),
            python("python-ddp-compiled", environment=MALLOC, optional=True),
            step("solo", "ours-fp32", "one-rank"), step("solo", "libtorch"),
            step("solo", "libtorch-fused"),
            step("solo", "libtorch-fused", "libtorch-fused-malloc", MALLOC)]
    if jemalloc := _jemalloc():
        jobs.append(python("python-ddp", "python-ddp-jemalloc", jemalloc))
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
            measured = f"bound-{wire}" if peer_name == "bound" else peer_name
            if measured in samples:
                rows.append(compare("step", name, samples[variant], samples[measured], peer_name,
                                    "ms", target))
            else:
                rows.append(absent("step", name, samples[variant], peer_name, "ms",
                                   "could not run"))
    return rows


def run(measurement, only):
    wanted = [model for model in MODELS if any(map(only.search, _names(model).values()))]
    rows = [row for model in wanted for row in _rows(model, _samples(measurement, model))]
    return [row for row in rows if only.search(row.name)]
