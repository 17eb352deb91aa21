"""One GPU: ten fused AdamW updates beside the device's copy bandwidth and Python's fused AdamW, ten passes of the
fused layers beside copies of as many bytes and LibTorch's operators, and ten training steps beside plain LibTorch's and Python's, by eager autocast, torch.compile and accelerate."""

import importlib.util
import os
import sys

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import absent, compare, counted

PROGRAMS = ("gpu_step", "gpu_update", "gpu_layers")

GROUPS, STEPS_IN_GROUP = 10, 10
UPDATES = {"124M": 124_000_000, "336M": 336_000_000}
DRY_UPDATES = {"0.1M": 100_000}
# Ratio that each peer must be beaten by.
UPDATE_PEERS = {"bound": 0.9, "python-fused": 1.3}
LAYER_PEERS = {"bound": None, "libtorch": 1.0}
LAYERS = 8192, 768, 50257  # rows, elements of a norm, classes: those of gpt2
STEPS = {"resnet50": {"libtorch": None, "eager": 1.05, "compile": None, "accelerate": None},
         "gpt2": {"libtorch": None, "eager": 1.15, "compile": 0.95, "accelerate": None},
         "bert": {"libtorch": None, "eager": 1.1, "compile": None, "accelerate": None},
         "mlp-small": {"libtorch": None, "eager": None, "compile": None, "accelerate": None},
         "resnet18": {"libtorch": None, "eager": None, "compile": None, "accelerate": None}}
# With recorded steps.
GRAPHED = {"mlp-small": {"libtorch": None, "eager": 3.0}, "resnet18": {"libtorch": None, "eager": 3.0}}
# CPUs are slow at convolutions in fp16.
DRY_CASES = [("fp16", "mlp-small"), ("fp16", "gpt2-tiny"), ("fp16", "bert-tiny"),
             ("bf16", "resnet18-tiny"), ("bf16", "resnet50-tiny")]
IDLE_LIMIT_PERCENT = 1.0


def _has_gpu():
    import torch
    return torch.cuda.is_available()


def _update_rows(measurement, device, name, count, groups):
    jobs = {f"ours and bound {name}":
                Job("free", program(measurement.build, "gpu_update", device, count, groups)),
            f"python-fused {name}": Job("free", peer("gpu_update.py", device, count, groups))}
    samples = measurement.alternate(jobs, measure.each)
    return [compare("gpu", f"10 updates adamw {name}", samples["adamw", "ours"],
                    samples["adamw", variant], variant, "ms", target)
            for variant, target in UPDATE_PEERS.items()]


def _layer_rows(measurement, device, rows, width, columns, groups):
    command = program(measurement.build, "gpu_layers", device, rows, width, columns, groups)
    samples = measurement.alternate({"layers": Job("free", command)}, measure.each)
    names = dict.fromkeys(name for name, _ in samples)
    return [compare("gpu", f"10 passes {name}", samples[name, "ours"], samples[name, peer_name], peer_name, "ms", target)
            for name in names for peer_name, target in LAYER_PEERS.items()]


def _peer_name(variant):
    return variant if variant == "libtorch" else f"python-{variant}"


def _step_samples(measurement, cases_of, groups, steps):
    """`cases_of`: what "ours" and each peer run, as (dtype, model); in one process, one after the other."""
    jobs = {}
    for variant, cases in cases_of.items():
        forms = [(f"libtorch-{dtype}" if variant == "libtorch" else dtype, model) for dtype, model in cases]
        arguments = [groups, steps, *(word for form in forms for word in form)]
        command = (program(measurement.build, "gpu_step", *arguments) if variant in ("ours", "libtorch")
                   else peer("gpu_step.py", variant, *arguments))
        names = ", ".join(f"{model} {dtype}" for dtype, model in cases)
        # Inductor needs a compiler, which a GPU machine may not have.
        optional = variant in ("compile", "accelerate")
        jobs[f"{variant} {names}"] = Job("free", command, optional=optional)
    return measurement.alternate(jobs, measure.each)


def _require_one_model(samples, model):
    counts = {variant: sample.notes["parameters"][0]
              for (name, variant), sample in samples.items() if name == model}
    if len(set(counts.values())) != 1:
        raise Failed(f"{model} is not the same model everywhere: parameters are {counts}")


def _most(sample, note):
    return max(sample.notes[note])


def _step_rows(samples, model, dtype, targets, form=""):
    _require_one_model(samples, model)
    ours = samples[model, f"ours-{dtype}{form}"]
    rows = []
    for variant, target in targets.items():
        name, peer_name = f"{STEPS_IN_GROUP} steps {model} {dtype}{form}", _peer_name(variant)
        theirs = samples.get((model, f"{peer_name}-{dtype}"))
        if theirs is None:
            rows.append(absent("gpu", name, ours, peer_name, "ms", "does not run here"))
            continue
        rows.append(compare("gpu", name, ours, theirs, peer_name, "ms", target))
        rows.append(counted("gpu", f"memory {model} {dtype}{form}", _most(ours, "used_bytes") / 2**20,
                            _most(theirs, "used_bytes") / 2**20, peer_name, "MiB",
                            1.0 if variant == "eager" else None))
    rows.append(counted("gpu", f"idle {model} {dtype}{form}", _most(ours, "idle_millionths") / 1e4,
                        IDLE_LIMIT_PERCENT, "limit", "%", 1.0))
    return rows


def _dry_rows(measurement):
    """Every program and every model once, in its smallest size; what it measures means nothing."""
    os.environ["LOCKSTEP_DEVICE"] = "cpu"
    rows = [row for name, count in DRY_UPDATES.items()
            for row in _update_rows(measurement, "cpu", name, count, 2)]
    rows += _layer_rows(measurement, "cpu", 8, 16, 24, 1)
    compiled = DRY_CASES[:1]
    samples = _step_samples(measurement, {"ours": DRY_CASES, "libtorch": DRY_CASES, "eager": DRY_CASES,
                                          "compile": compiled}, 1, 2)
    for case in DRY_CASES:
        targets = dict.fromkeys(["libtorch", "eager", "accelerate"] + ["compile"] * (case in compiled))
        rows += _step_rows(samples, case[1], case[0], targets)
    for row in rows:
        row.target = None
    return rows


def _model_rows(measurement, model, dtype, accelerate):
    installed = [variant for variant in STEPS[model] if accelerate or variant != "accelerate"]
    cases = dict.fromkeys(["ours", *installed], [(dtype, model)])
    if model in GRAPHED:
        cases["ours"] = [(dtype, model), (f"{dtype}-graph", model)]
    samples = _step_samples(measurement, cases, GROUPS, STEPS_IN_GROUP)
    rows = _step_rows(samples, model, dtype, STEPS[model])
    if model in GRAPHED:
        rows += _step_rows(samples, model, dtype, GRAPHED[model], "-graph")
    return rows


def _rows(measurement, only):
    """Of what has a row that is wanted. What fails costs its own rows alone."""
    os.environ["LOCKSTEP_DEVICE"] = "cuda"
    accelerate = importlib.util.find_spec("accelerate") is not None
    measured = {f"10 updates adamw {name}":
                lambda name=name, count=count: _update_rows(measurement, "cuda", name, count, GROUPS)
                for name, count in UPDATES.items()}
    measured["10 passes"] = lambda: _layer_rows(measurement, "cuda", *LAYERS, GROUPS)
    for model in STEPS:
        for dtype in ("fp16", "bf16"):
            measured[f"{STEPS_IN_GROUP} steps {model} {dtype}"] = (
                lambda model=model, dtype=dtype: _model_rows(measurement, model, dtype, accelerate))
    rows = []
    for name, measure_rows in measured.items():
        if not only.search(name):
            continue
        try:
            rows += measure_rows()
        except Failed as error:
            print(f"warning: {name} is left out: {error}", file=sys.stderr)
    return rows


def run(measurement, only, dry_run=False):
    if not dry_run and not _has_gpu():
        raise Failed("there is no GPU here; --dry-run checks the programs of this suite on the CPU")
    if dry_run:
        return [row for row in _dry_rows(measurement) if only.search(row.name)]
    return _rows(measurement, only)
