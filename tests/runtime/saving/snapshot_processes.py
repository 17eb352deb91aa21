"""Whole processes that are killed, and started again on other numbers of ranks.

snapshot_processes.py TEST PROGRAM LAUNCHER...    PROGRAM: snapshot_program; LAUNCHER ends before N
"""

import collections
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

import torch

from snapshot_reader import read_snapshot

SAMPLES = 120
# The mode in which a rank has the least of the state.
LEAN = "sharded offloaded" if os.environ.get("LOCKSTEP_DEVICE") == "cuda" else "shared"


def start(ranks, *arguments):
    return subprocess.run([*LAUNCHER, str(ranks), PROGRAM, *map(str, arguments)],
                          capture_output=True, text=True, timeout=100, check=False)


class Processes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def train(self, ranks, *arguments):
        ended = start(ranks, *arguments)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def assert_same(self, ours, expected, what):
        self.assertEqual(ours.keys(), expected.keys(), what)
        for name, tensor in expected.items():
            self.assertTrue(torch.equal(ours[name], tensor), f"{what}, {name}")

    def test_elastic(self):
        """Other numbers of ranks take over the same state, and each sample is used once an epoch.

        (ranks, micro-batches until the end, mode): 24 + 6 + 12 + 18 samples, then the last 60.
        """
        stages = [(4, 3, LEAN), (1, 6, ""), (2, 9, "sharded"), (3, 12, LEAN), (8, 16, LEAN)]
        before, seen = self.folder / "none", collections.Counter()
        for number, (ranks, end, mode) in enumerate(stages):
            run = self.folder / f"run{number}"
            self.train(ranks, before, run, end, *mode.split())
            if number > 0:
                step = f"step-{stages[number - 1][1]:012}"
                _, expected, _ = read_snapshot(before / step)
                manifest, taken_over, _ = read_snapshot(run / step)
                self.assertEqual(manifest["world_size"], ranks)
                for section in ("model", "optimizer", "trainer"):
                    self.assert_same(taken_over[section], expected[section], f"{ranks} ranks")
            for rank in range(ranks):
                for line in pathlib.Path(f"{run}.seen.{rank}").read_text().splitlines():
                    seen[tuple(map(int, line.split()))] += 1
            before = run
        self.assertEqual(seen, collections.Counter((0, sample) for sample in range(SAMPLES)))

    def test_reader(self):
        """docs/snapshot-format.md suffices to read slices, tied names and ranks' own state."""
        states = []
        for moments in ((), ("fp32-moments",)):
            run = self.folder / f"run{len(states)}"
            self.train(2, run, run, 1, "sharded", *moments)
            manifest, shared, own = read_snapshot(run / "step-000000000001")
            roles = {file["role"] for file in manifest["files"].values()}
            self.assertEqual(roles, {"whole", "slices", "own"})
            self.assertEqual(shared["trainer"]["updates"].item(), 1)
            self.assertIn("clip_grad_value none", manifest["texts"]["configuration"])
            self.assertEqual(shared["model"]["tied"].shape, (6, 6))
            self.assertTrue(torch.equal(shared["model"]["tied"], shared["model"]["middle.weight"]))
            self.assertEqual(shared["model"]["first.weight"].dtype, torch.float32)
            self.assertEqual(own["random", 1]["cpu"].dtype, torch.uint8)
            states.append(shared["optimizer"])
        rounded, exact = states
        names = [name for name in exact if name.endswith((".exp_avg", ".exp_avg_sq"))]
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertEqual(rounded[name].dtype, torch.bfloat16, name)
            error = (rounded[name].float() - exact[name]).abs()
            self.assertTrue((error <= exact[name].abs() / 128).all(), name)

    def test_kill(self):
        """kill -9 of one of two ranks in the middle of a save, five times, ends bit-equal."""
        end = 12
        modes = [LEAN, "sharded"]
        self.train(2, self.folder / "unbroken", self.folder / "unbroken", end, "sharded")
        seed = int.from_bytes(os.urandom(4), "little")
        draw = random.Random(seed)
        # A save takes more than 16 calls on each rank: two runs together complete at most 5 of the 6.
        run, kills = self.folder / "run", 0
        for number in range(5):
            point = f"kill={draw.randrange(2)}:{draw.randrange(15, 50)}"
            ended = start(2, run, run, end, *modes[number % 2].split(), point)
            kills += ended.returncode != 0
            if ended.returncode != 0:
                self.assertIn(f"signal {int(signal.SIGKILL)}", ended.stdout + ended.stderr)
        self.assertGreater(kills, 1, f"seed {seed}")
        self.train(2, run, run, end, *LEAN.split())
        _, expected, expected_own = read_snapshot(self.folder / "unbroken" / f"step-{end:012}")
        _, ours, own = read_snapshot(run / f"step-{end:012}")
        for section in expected:
            self.assert_same(ours[section], expected[section], f"seed {seed}, {section}")
        for key in expected_own:
            self.assert_same(own[key], expected_own[key], f"seed {seed}, {key}")


if __name__ == "__main__":
    PROGRAM, LAUNCHER = sys.argv[2], sys.argv[3:]
    unittest.main(argv=[sys.argv[0], f"Processes.{sys.argv[1]}"])
