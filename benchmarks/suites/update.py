"""One AdamW update of 14.7M parameters on one thread."""

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import compare


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
    return [row for row in rows if only.search(row.name)]
