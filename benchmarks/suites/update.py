"""One update of 14.7M parameters on one thread: AdamW beside its peers, and every other form."""

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import compare, counted

PROGRAMS = ("update", "update_forms")

# Of copy bandwidth: what an fp32 or 16-bit form that is bound by memory has to reach.
COPY_TARGET = 0.85
MEMORY_BOUND = ("adamw fp32", "adamw bf16 masters", "sgd", "sgd momentum", "lion")


def run(measurement, only):
    jobs = {"ours, torch::optim and bound": Job("solo", program(measurement.build, "update")),
            "python-fused": Job("solo", peer("update_fused.py"))}
    samples = measurement.alternate(jobs, measure.each)
    counts = {key: sample.notes["parameters"][0] for key, sample in samples.items()}
    if len(set(counts.values())) != 1:
        raise Failed(f"the updates do not have the same number of parameters: {counts}")
    rows = []
    for wire in ("fp32", "fp16"):
        name = "adamw 14.7M" if wire == "fp32" else "adamw 14.7M fp16-gradient"
        ours = samples["adamw", f"ours-{wire}"]
        for variant, target in (("torch::optim", 4.0), ("python-fused", 1.0), ("bound", None)):
            peer_sample = samples["adamw", f"bound-{wire}" if variant == "bound" else variant]
            rows.append(compare("update", name, ours, peer_sample, variant, "ms", target))
    rows += forms(measurement)
    return [row for row in rows if only.search(row.name)]


def forms(measurement):
    """The update of each optimizer and form beside a copy of as many bytes."""
    samples = measurement.alternate({"forms": Job("solo", program(measurement.build, "update_forms"))},
                                    measure.each)
    rows = []
    for name, variant in samples:
        ours, notes = samples[name, variant], samples[name, variant].notes
        if variant != "ours":
            continue
        if "casts" in notes:
            rows.append(counted("update", f"{name} per update", notes["casts"][0],
                                samples[name, "libtorch"].notes["casts"][0], "libtorch", "casts"))
        elif "bytes" in notes:
            each = notes["bytes"][0] / notes["parameters"][0]
            rows.append(compare("update", f"{name} 14.7M ({each:.4g} B/parameter)", ours,
                                samples[name, "copy"], "copy", "ms",
                                COPY_TARGET if name in MEMORY_BOUND else None))
        else:
            rows.append(compare("update", f"{name} 14.7M", ours, samples[name, "libtorch"],
                                "libtorch", "ms", 1.0))
    return rows
