"""Training steps of the three reference models: two ranks of one thread, one rank alone, and of
one model more ranks, which share the two cores. Two ranks with an option beside two without."""

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
         "libtorch-mpi-fused-malloc": (1.0, 1.0, 1.0),
         "python-ddp-malloc": (1.05, 1.05, 1.05),
         "python-ddp-jemalloc": (1.05, 1.05, 1.05),
         "python-ddp-compiled": (None, None, None)}
CROWDED = {"lstm": (3, 4)}  # ranks
CROWDED_PEERS = {"bound": None, "python-ddp-malloc": 1.0, "libtorch-mpi": 1.0,
                 "libtorch-mpi-fused-malloc": 1.0}
ONE_RANK_PEERS = {"libtorch": 1.0, "libtorch-fused": None, "libtorch-fused-malloc": 1.0}
# Ours with the layers or the memory layout that suit the model: row, variant, and the ratio for each peer.
TUNED_PEERS = {"libtorch-mpi-fused-malloc": 1.05, "python-ddp-malloc": 1.05, "python-ddp-compiled": 1.05}
LAYERS = {"lstm": ("fused layers", "layers-fused", {"ours-fp16": 1.0, **TUNED_PEERS}),
          "gpt": ("fused layers", "layers-fused", {"ours-fp16": 1.0, **TUNED_PEERS}),
          "resnet18": ("channels_last", "layers-channels-last",
                       {"ours-fp16": 1.0, **TUNED_PEERS, "libtorch-mpi-fused-channels-last": 1.0})}
# Of two ranks: row, models, variant, the variant without the option, micro-batches, ratio.
OPTIONS = (("reproducible", MODELS, "reproducible-1", "accumulate-1", 1, 0.87),
           ("reproducible accumulate 4", MODELS, "reproducible-4", "accumulate-4", 4, 0.87),
           ("muon sharded", ("gpt",), "muon-sharded", "muon", 1, 1.0),
           ("sharded", ("gpt", "resnet18"), "sharded-fp16", "ours-fp16", 1, None),
           ("shared weights", ("gpt", "resnet18"), "shared-fp16", "sharded-fp16", 1, 0.98))

# glibc keeps freed memory, as a Runtime that owns its program asks of it (mallopt).
MALLOC = (("MALLOC_MMAP_THRESHOLD_", str(1 << 30)), ("MALLOC_TRIM_THRESHOLD_", str(1 << 30)))
# The settings of PyTorch's tuning guide for jemalloc.
JEMALLOC = (("MALLOC_CONF", "oversize_threshold:1,background_thread:true,metadata_thp:auto,"
             "dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000"),)


def _jemalloc():
    """Its settings, or None where libjemalloc2 is not installed."""
    library = ctypes.util.find_library("jemalloc")
    return JEMALLOC + (("LD_PRELOAD", library),) if library else None


def _jobs(build, model, ranks):
    """The bound is the same program as ours, started alone on each rank."""
    def step(launch, variant, alias="", environment=()):
        return Job(launch, program(build, "step", variant, model, STEPS), alias or variant, ranks,
                   environment=environment)

    def python(variant, alias="", environment=(), optional=False):
        return Job("group", peer("step_ddp.py", variant, model, STEPS), alias or variant, ranks,
                   optional=optional, environment=environment)

    jobs = [step("mpi", "ours-fp16"), step("group", "ours-fp16", "bound-fp16"),
            step("mpi", "ours-fp32"), step("group", "ours-fp32", "bound-fp32"),
            step("mpi", "libtorch-mpi"),
            step("mpi", "libtorch-mpi-fused", "libtorch-mpi-fused-malloc", MALLOC),
            python("python-ddp", "python-ddp-malloc", MALLOC)]
    if ranks == 2:
        jobs += [step("mpi", "libtorch-mpi-fused"), python("python-ddp"),
                 python("python-ddp-fp16"),
                 python("python-ddp-compiled", environment=MALLOC, optional=True),
                 step("mpi", LAYERS[model][1]),
                 step("solo", "ours-fp32", "one-rank"), step("solo", "libtorch"),
                 step("solo", "libtorch-fused"),
                 step("solo", "libtorch-fused", "libtorch-fused-malloc", MALLOC)]
    if model == "resnet18":
        jobs.append(step("mpi", "libtorch-mpi-fused-channels-last", environment=MALLOC))
    jemalloc = _jemalloc()
    if ranks == 2 and jemalloc:
        jobs.append(python("python-ddp", "python-ddp-jemalloc", jemalloc))
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
    if ranks > 2:
        return names
    row, variant, _ = LAYERS[model]
    return {**names, variant: f"{model} {row}", "one-rank": f"one-rank {model}"}


def _targets(variant, model, ranks):
    """{peer: ratio}"""
    if variant == "one-rank":
        return ONE_RANK_PEERS
    if variant == LAYERS[model][1]:
        return LAYERS[model][2]
    if ranks > 2:
        return CROWDED_PEERS
    return {name: targets[MODELS.index(model)] for name, targets in PEERS.items()}


def _absent(name, ours, peer_name):
    missing = peer_name == "python-ddp-jemalloc"
    return absent("step", name, ours, peer_name, "ms",
                  "not installed: libjemalloc2" if missing else "does not run here", missing)


def _rows(measurement, model, ranks):
    samples = _samples(measurement, model, ranks)
    rows = []
    for variant, name in _names(model, ranks).items():
        for peer_name, target in _targets(variant, model, ranks).items():
            measured = variant.replace("ours", "bound") if peer_name == "bound" else peer_name
            if measured in samples:
                rows.append(compare("step", name, samples[variant], samples[measured], peer_name,
                                    "ms", target))
            else:
                rows.append(_absent(name, samples[variant], peer_name))
    return rows


def updates_of(micro_batches):
    """How long each update took, on whichever rank: one call of step() for each micro-batch. The
    calls of a rank must be whole updates."""
    def seconds(records):
        times = measure.each(records)
        return [sum(times[i:i + micro_batches]) for i in range(0, len(times), micro_batches)]
    return seconds


def _option_row(measurement, name, model, variant, without, micro_batches, target):
    jobs = {f"{model} {one}": Job("mpi", program(measurement.build, "step", one, model, STEPS), one)
            for one in (variant, without)}
    measured = measurement.alternate(jobs, updates_of(micro_batches))
    return compare("step", name, measured[model, variant], measured[model, without], without, "ms",
                   target)


def _option_rows(measurement, only):
    return [_option_row(measurement, f"{model} {row}", model, *option)
            for row, models, *option in OPTIONS for model in models
            if only.search(f"{model} {row}")]


SHARDING_PEERS = ("python-fsdp2", "python-deepspeed")  # the second: pip install --no-build-isolation deepspeed


def _sharding_rows(measurement, only):
    """Weights that the ranks of a host share, beside weights that are sharded over them."""
    rows = []
    for model in ("gpt", "resnet18"):
        name = f"{model} shared weights fp32-wire"
        if not only.search(name):
            continue
        jobs = {f"{model} shared-fp32": Job("mpi", program(measurement.build, "step", "shared-fp32", model, STEPS),
                                            "shared-fp32"),
                **{f"{model} {variant}": Job("group", peer("step_ddp.py", variant, model, STEPS), variant, optional=True,
                                             environment=MALLOC)
                   for variant in SHARDING_PEERS}}
        measured = measurement.alternate(jobs, measure.each)
        rows += [compare("step", name, measured[model, "shared-fp32"], measured[model, variant], variant, "ms")
                 for variant in SHARDING_PEERS if (model, variant) in measured]
    return rows


def _version_row(measurement, only):
    """Advancing the versions of 20,000 parameters beside the step that does it: at most 0.3 %."""
    name = "versions of 20,000 parameters"
    if not only.search(name):
        return []
    job = Job("solo", program(measurement.build, "step", "ours-fp32", "scales", STEPS))
    measured = measurement.alternate({"scales": job}, measure.each)
    return [compare("step", name, measured["scales", "versions"], measured["scales", "ours-fp32"],
                    "the step", "ms", 333.0)]


def run(measurement, only):
    rows = _version_row(measurement, only)
    for model in MODELS:
        for ranks in (2, *CROWDED.get(model, ())):
            if any(map(only.search, _names(model, ranks).values())):
                rows += _rows(measurement, model, ranks)
    return [row for row in rows if only.search(row.name)] + _option_rows(measurement, only) + _sharding_rows(measurement, only)
