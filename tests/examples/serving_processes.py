"""14_serving: a model is exported, trained in C++, compiled by the wheel's AOTInductor and served in C++.

serving_processes.py PROGRAM MODEL_PY -- LAUNCHER..."""
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch.export.pt2_archive._package import load_pt2

split = sys.argv.index("--")
PROGRAM, MODEL = sys.argv[1:split]
LAUNCHER = sys.argv[split + 1:]


def python(folder, *arguments):
    subprocess.run([sys.executable, "-B", "-W", "ignore", MODEL, *arguments], cwd=folder, check=True,
                   env={"TORCHINDUCTOR_CACHE_DIR": folder + "/cache", **os.environ})


class Serving(unittest.TestCase):
    def test_the_compiled_package_answers_as_the_trained_archive_does_in_python(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
            python(folder, "export", "model.pt2")
            subprocess.run([*LAUNCHER, PROGRAM, "train", "model.pt2", "trained.pt2"], cwd=folder, check=True)
            python(folder, "compile", "trained.pt2", "served.pt2")
            points = torch.linspace(-2, 2, 14).view(7, 2)
            requests = "".join(f"{x:.9g} {y:.9g}\n" for x, y in points.tolist()) + "one\n"
            answers = subprocess.run([PROGRAM, "serve", "served.pt2"], cwd=folder, check=True, text=True, input=requests,
                                     stdout=subprocess.PIPE).stdout.splitlines()
            self.assertEqual(answers.pop(), "a request is two numbers")
            served = torch.tensor([float(answer) for answer in answers])
            pythons = load_pt2(folder + "/trained.pt2").exported_programs["eval"].module()(points).detach().flatten()
            untrained = load_pt2(folder + "/model.pt2").exported_programs["eval"].module()(points).detach().flatten()
        torch.testing.assert_close(served, pythons, rtol=1e-4, atol=1e-5)
        truth = points[:, 0].sin() * points[:, 1].cos()
        self.assertLess((served - truth).square().mean(), 0.2 * (untrained - truth).square().mean())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
