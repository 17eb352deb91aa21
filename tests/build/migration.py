"""Fails when a public argument or call of torch's own classes, or of apex.amp.initialize, has no row in docs/migration.md."""

import inspect
import pathlib
import re
import sys

import torch.utils.checkpoint
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel

if not torch.__version__.startswith("2.11."):
    print(f"the page has the calls of torch 2.11, this is {torch.__version__}")
    sys.exit(0)

STATES = {"yes", "other", "refused", "none", "more"}
# apex/amp/frontend.py; Apex is not a package that can be installed from an index.
APEX_INITIALIZE = ["models", "optimizers", "enabled", "opt_level", "cast_model_type", "patch_torch_functions",
                   "keep_batchnorm_fp32", "master_weights", "loss_scale", "cast_model_outputs", "num_losses",
                   "verbosity", "min_loss_scale", "max_loss_scale"]


def arguments(function):
    return [name for name in inspect.signature(function).parameters if name not in ("self", "args", "kwargs")]


def public(thing):
    return [name for name in vars(thing) if not name.startswith("_")]


checkpoint = torch.utils.checkpoint
expected = {
    "torch.nn.parallel.DistributedDataParallel":
        arguments(DistributedDataParallel.__init__) + public(DistributedDataParallel),
    "torch.amp.GradScaler": arguments(GradScaler.__init__) + public(GradScaler),
    "torch.autocast": arguments(torch.autocast.__init__),
    "torch.utils.checkpoint":
        checkpoint.__all__ + arguments(checkpoint.checkpoint) + arguments(checkpoint.checkpoint_sequential),
    "apex.amp.initialize and its companions": APEX_INITIALIZE,
}
page = (pathlib.Path(sys.argv[1]) / "docs/migration.md").read_text(encoding="utf-8")
sections = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", page, flags=re.M)[1:]}
wrong = []
for section, names in expected.items():
    rows = [line.split("|") for line in sections[section].splitlines() if line.startswith("| ")]
    calls = " ".join(row[1] for row in rows)
    wrong += [f"{section}: no row for {name}" for name in names if not re.search(rf"\b{name}\b", calls)]
    wrong += [f"{section}:{row[1]}: the state is {row[2]}" for row in rows[1:] if row[2].strip() not in STATES]
print("\n".join(wrong) or f"{sum(map(len, expected.values()))} arguments and calls have their rows")
sys.exit(bool(wrong))
