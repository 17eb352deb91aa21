"""A surrogate that is trained while the simulation runs: it learns, and a killed run ends with the bits of
an unbroken one.

heat_processes.py PROGRAM ARGUMENTS-OF-THE-PROGRAM -- LAUNCHER... RANKS
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from rank_processes import ranks_of


class Heat(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start(self, run, steps):
        return subprocess.Popen([*LAUNCHER, PROGRAM, *ARGUMENTS, "--run", str(run), "--steps", str(steps)],
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def finish(self, run, steps):
        process = self.start(run, steps)
        said, _ = process.communicate(timeout=800)
        self.assertEqual(process.returncode, 0, said)
        return re.findall(r"^step .*$", said, re.M)

    def kill(self, run):
        """Ends the last rank of an endless run by SIGKILL, once it has saved and gone on."""
        with self.start(run, 10 ** 9) as process:
            for said in process.stdout:
                if said.startswith("step 80 "):
                    os.kill(ranks_of(process.pid, PROGRAM)[-1], signal.SIGKILL)
                    break
            process.stdout.read()
        self.assertNotEqual(process.returncode, 0)

    def newest(self, run):
        path = max(path for path in run.glob("step-*") if path.name[-1].isdigit())  # not unfinished ones
        return path.name, {file.name: file.read_bytes() for file in path.glob("*.safetensors")}

    def test_a_killed_run_ends_like_an_unbroken_one(self):
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        self.kill(killed)
        updates = int(self.newest(killed)[0].split("-")[1])  # the first 7 steps make none
        steps = max(200, (updates + 7) // 20 * 20 + 60)
        again = self.finish(killed, steps)
        lines = self.finish(unbroken, steps)
        self.assertGreaterEqual(len(again), 3)
        self.assertLess(len(again), len(lines))
        self.assertEqual(again, lines[-len(again):])
        self.assertEqual(self.newest(killed), self.newest(unbroken))
        losses = [float(line.split()[-1]) for line in lines]
        self.assertLess(losses[-1], losses[0] / 4)


if __name__ == "__main__":
    PROGRAM, (*ARGUMENTS,) = sys.argv[1], sys.argv[2:sys.argv.index("--")]
    LAUNCHER = sys.argv[sys.argv.index("--") + 1:]
    unittest.main(argv=[sys.argv[0]])
