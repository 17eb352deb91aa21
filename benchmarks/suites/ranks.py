"""All-reduces and training steps on 2, 4, 8 and 16 ranks, each with a core of its own; numbers of ranks that the machine
has no cores for are left out. Rows have no targets."""

import sys

from harness import measure
from harness.launch import Job, peer, physical_cores, program
from harness.rows import compare
from suites.allreduce import SIZES
from suites.step import MALLOC, MODELS, STEPS

PROGRAMS = ("allreduce", "step")

RANKS = (2, 4, 8, 16)
SUMS = {"fp16": "mpi-custom-op", "fp32": "mpi"}  # what MPI sums each type with
STEP_PEERS = ("libtorch-mpi", "libtorch-mpi-fused-malloc", "python-ddp-malloc")


def _sum_names(ranks):
    """{row: what the programs call it}"""
    return {f"{ranks} ranks allreduce {dtype} {size}": (dtype, size) for dtype in SUMS for size in SIZES}


def _sum_rows(measurement, ranks):
    jobs = {f"ours and mpi, {ranks} ranks": Job("mpi", program(measurement.build, "allreduce"), ranks=ranks, cores=ranks),
            f"gloo, {ranks} ranks": Job("group", peer("allreduce_gloo.py"), ranks=ranks, cores=ranks, optional=True)}
    samples = measurement.alternate(jobs, measure.together)
    return [compare("ranks", row, samples[f"{dtype} {size}", "ours"], samples[f"{dtype} {size}", variant], variant,
                    "ms" if size == "32MB" else "us")
            for row, (dtype, size) in _sum_names(ranks).items() for variant in (SUMS[dtype], "gloo")
            if (f"{dtype} {size}", variant) in samples]


def _step_rows(measurement, model, ranks):
    def step(launch, variant, alias, environment=()):
        return Job(launch, program(measurement.build, "step", variant, model, STEPS), alias, ranks, environment=environment,
                   cores=ranks)

    jobs = [step("mpi", "ours-fp16", "ours-fp16"), step("group", "ours-fp16", "bound-fp16"),
            step("mpi", "ours-fp32", "ours-fp32"), step("group", "ours-fp32", "bound-fp32"),
            step("mpi", "libtorch-mpi", STEP_PEERS[0]), step("mpi", "libtorch-mpi-fused", STEP_PEERS[1], MALLOC),
            Job("group", peer("step_ddp.py", "python-ddp", model, STEPS), STEP_PEERS[2], ranks, environment=MALLOC, cores=ranks,
                optional=True)]
    measured = measurement.alternate({f"{model} {ranks} ranks {job.variant}": job for job in jobs}, measure.each)
    samples = {variant: sample for (_, variant), sample in measured.items()}
    return [compare("ranks", name, samples[f"ours-{wire}"], samples[variant], variant.replace(f"-{wire}", ""), "ms")
            for wire, name in (("fp16", f"{ranks} ranks {model}"), ("fp32", f"{ranks} ranks {model} fp32-wire"))
            for variant in (f"bound-{wire}", *STEP_PEERS) if variant in samples]


def run(measurement, only):
    rows, own = [], len(physical_cores())
    for ranks in RANKS:
        sums = any(map(only.search, _sum_names(ranks)))
        models = [model for model in MODELS if only.search(f"{ranks} ranks {model}") or only.search(f"{ranks} ranks {model} fp32-wire")]
        if (sums or models) and ranks > own:
            print(f"warning: {ranks} ranks are not timed: this process may use {own} cores", file=sys.stderr)
            continue
        if sums:
            rows += _sum_rows(measurement, ranks)
        for model in models:
            rows += _step_rows(measurement, model, ranks)
    return [row for row in rows if only.search(row.name)]
