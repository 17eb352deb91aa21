"""What the programs of this folder share. Start one alone, or on several processes:

  python -m torch.distributed.run --nproc-per-node 2 -- word_lm.py ...
"""

import contextlib
import json
import os
import pathlib

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel


def rank():
    return int(os.environ.get("RANK", 0))


def ranks():
    return int(os.environ.get("WORLD_SIZE", 1))


@contextlib.contextmanager
def processes():
    """One thread each, as lockstep does on as many processors as ranks."""
    torch.manual_seed(0)
    if ranks() > 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks()))
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        # Several processes of one machine may meet in a file instead of at MASTER_ADDR.
        meeting = os.environ.get("LOCKSTEP_MEETING", "env://")
        store, _, _ = next(dist.rendezvous(meeting, rank(), ranks()))
        dist.init_process_group("gloo", store=store, rank=rank(), world_size=ranks())
    try:
        yield
        if ranks() > 1:
            # No rank closes its connections while another waits for them: not even in a barrier of gloo.
            store.set(f"done/{rank()}", "")
            store.wait([f"done/{other}" for other in range(ranks())])
    finally:
        if ranks() > 1:
            dist.destroy_process_group()


def parallel(model, wire):
    """The model whose gradients are averaged over the processes, in fp16 if the wire is "fp16"."""
    if ranks() == 1:
        return model
    wrapped = DistributedDataParallel(model)
    if wire == "fp16":
        wrapped.register_comm_hook(None, fp16_compress_hook)
    return wrapped


class Results:
    """What the first process writes to FOLDER/result.json: the curve of each epoch, and numbers at the end.

    With `resume`, a run that was interrupted goes on after the last epoch that FOLDER/checkpoint.pt has: of `parts`,
    which have a state_dict each, and of the generator of each process.
    """

    def __init__(self, folder, resume=False, **parts):
        self.path, self.values, self.parts = pathlib.Path(folder) / "result.json", {"curve": []}, parts
        self.checkpoint = self.path.with_name("checkpoint.pt")
        if resume and self.checkpoint.exists():
            found = torch.load(self.checkpoint)
            for name, part in parts.items():
                part.load_state_dict(found[name])
            self.values["curve"] = found["curve"]
            torch.set_rng_state(found["generators"][rank()])

    def epochs(self, count):
        """The epochs that are left."""
        return range(len(self.values["curve"]), count)

    def epoch(self, value):
        self.values["curve"].append(value)
        generators = [torch.get_rng_state()]
        if ranks() > 1:
            generators *= ranks()
            dist.all_gather_object(generators, torch.get_rng_state())
        if rank() == 0:
            print(f"epoch {len(self.values['curve'])}: {value:.4f}", flush=True)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.checkpoint.with_suffix(".new")
            torch.save({name: part.state_dict() for name, part in self.parts.items()}
                       | {"curve": self.values["curve"], "generators": generators}, new)
            new.rename(self.checkpoint)

    def write(self, values):
        self.values.update(values)
        if rank() == 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.values, indent=1) + "\n", encoding="utf-8")
            print(self.values, flush=True)
