"""python_ddp.py TRAIN LAUNCHER...: two ranks of lockstep follow Python's DDP over Gloo."""

import pathlib
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

import oracle

STEPS, RANKS = 20, 2
MODELS = ("mlp", "transformer")


def ddp_rank(rank, folder):
    """Leaves this rank's losses and weights in folder/model, named like train.cpp's."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank,
                            world_size=RANKS)
    for name in MODELS:
        model = DistributedDataParallel(oracle.make_model(name), gradient_as_bucket_view=True)
        inputs, targets = oracle.make_data(name, STEPS, RANKS)
        optimizer = oracle.make_optimizer("adamw", model.parameters())
        losses = oracle.train(model, optimizer, inputs[:, rank], targets[:, rank])
        oracle.write_result(folder / name, rank, losses, model)
    dist.destroy_process_group()


class PythonDdp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        for name in MODELS:
            (cls.folder / name).mkdir()
        processes.spawn(ddp_rank, (cls.folder,), RANKS)

    def follows(self, name):
        model = oracle.make_model(name)
        expected = oracle.read_results(self.folder / name, RANKS)
        with tempfile.TemporaryDirectory() as folder:
            ours = oracle.lockstep_train(LAUNCHER, PROGRAM, pathlib.Path(folder), model, "adamw",
                                         *oracle.make_data(name, STEPS, RANKS))
        self.assertTrue(torch.equal(ours[0].weights, ours[1].weights), "ranks of lockstep differ")
        self.assertFalse(torch.equal(ours[0].losses, ours[1].losses), "ranks had the same data")
        for rank in range(RANKS):
            worst = oracle.losses_apart(ours[rank], expected[rank])
            apart = oracle.weights_apart(ours[rank], expected[rank], model)
            print(f"{name}, rank {rank}: losses apart by {worst:.1e}, weights by {apart:.1e}")
            self.assertEqual(len(ours[rank].losses), STEPS)
            self.assertLess(worst, 1e-6)
            self.assertLess(apart, 1e-6)

    def test_mlp(self):
        self.follows("mlp")

    def test_transformer(self):
        self.follows("transformer")


if __name__ == "__main__":
    PROGRAM, *LAUNCHER = sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1])
