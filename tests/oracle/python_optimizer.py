"""python_optimizer.py TRAIN OPTIMIZER: one rank of lockstep follows Python's torch.optim."""

import pathlib
import sys
import tempfile
import unittest

import torch

import oracle

STEPS = 50


class PythonOptimizer(unittest.TestCase):
    def follows(self, name):
        model = oracle.make_model(name)
        inputs, targets = oracle.make_data(name, STEPS, ranks=1)
        with tempfile.TemporaryDirectory() as folder:
            (ours,) = oracle.lockstep_train([], PROGRAM, pathlib.Path(folder), model, OPTIMIZER,
                                            inputs, targets)
        optimizer = oracle.make_optimizer(OPTIMIZER, model.parameters())
        losses = oracle.train(model, optimizer, inputs[:, 0], targets[:, 0])
        expected = oracle.Result(torch.tensor(losses, dtype=torch.float64), oracle.flat(model))
        worst = oracle.losses_apart(ours, expected)
        apart = oracle.weights_apart(ours, expected, model)
        print(f"{name}: losses {losses[0]:.4f} to {losses[-1]:.4f}, apart by {worst:.1e}; "
              f"weights apart by {apart:.1e}")
        self.assertEqual(len(ours.losses), STEPS)
        self.assertLess(losses[-1], 0.9 * losses[0], "the oracle itself does not learn")
        self.assertLess(worst, 1e-5)
        self.assertLess(apart, 1e-5)

    def test_mlp(self):
        self.follows("mlp")

    def test_transformer(self):
        self.follows("transformer")


if __name__ == "__main__":
    PROGRAM, OPTIMIZER = sys.argv[1:]
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1])
