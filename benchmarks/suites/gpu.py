"""One GPU: ten fused AdamW updates beside the device's copy bandwidth and Python's fused AdamW."""

from harness import measure
from harness.launch import Failed, Job, peer, program
from harness.rows import compare

GROUPS = 10
SIZES = {"124M": 124_000_000, "336M": 336_000_000}
DRY_SIZES = {"0.1M": 100_000}
# Ratio that each peer must be beaten by.
PEERS = {"bound": 0.9, "python-fused": 1.3}


def _has_gpu():
    import torch
    return torch.cuda.is_available()


def _rows(measurement, device, name, count, groups):
    jobs = {f"ours and bound {name}":
                Job("solo", program(measurement.build, "gpu_update", device, count, groups)),
            f"python-fused {name}": Job("solo", peer("gpu_update.py", device, count, groups))}
    samples = measurement.alternate(jobs, measure.each)
    return [compare("gpu", f"10 updates adamw {name}", samples["adamw", "ours"],
                    samples["adamw", variant], variant, "ms", target if device == "cuda" else None)
            for variant, target in PEERS.items()]


def run(measurement, only, dry_run=False):
    if not dry_run and not _has_gpu():
        raise Failed("there is no GPU here; --dry-run checks the programs of this suite on the CPU")
    device, groups = ("cpu", 2) if dry_run else ("cuda", GROUPS)
    rows = [row for name, count in (DRY_SIZES if dry_run else SIZES).items()
            for row in _rows(measurement, device, name, count, groups)]
    return [row for row in rows if only.search(row.name)]
