"""The word model on made-up text: it learns, a killed run ends with the bits of an unbroken one, and
missing files are named.

word_lm_processes.py PROGRAM LAUNCHER... RANKS
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

from rank_processes import ranks_of

SMALL = ["--synthetic", "--width", "16", "--hidden", "16", "--layers", "1", "--dropout", "0.1", "--epochs", "3",
         "--batch-size", "12", "--length", "20", "--learning-rate", "20", "--save-every", "12", "--resume"]


class WordLm(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def start(self, run, *arguments):
        return subprocess.Popen([*LAUNCHER, PROGRAM, "--run", str(run), *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def train(self, run, *arguments):
        process = self.start(run, *SMALL, *arguments)
        said, _ = process.communicate(timeout=800)
        self.assertEqual(process.returncode, 0, said)
        return said

    def kill(self, run, line):
        """Ends the last rank by SIGKILL once the run has printed `line`. A run that ends before that is a whole one,
        which changes nothing when it is started again."""
        with self.start(run, *SMALL) as process:
            for said in process.stdout:
                if line in said:
                    with contextlib.suppress(ProcessLookupError):
                        for rank in ranks_of(process.pid, PROGRAM)[-1:]:
                            os.kill(rank, signal.SIGKILL)
                    break
            else:
                self.fail(f"the run did not print {line}")
            process.stdout.read()

    def newest(self, run):
        """The bytes of the weights of the newest snapshot, and the updates it is of."""
        path = max(path for path in run.glob("step-*") if path.name[-1].isdigit())  # not unfinished ones
        return path.name, {file.name: file.read_bytes() for file in path.glob("model*.safetensors")}

    def test_a_killed_run_ends_like_an_unbroken_one(self):
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        said = self.train(unbroken)
        self.assertIn("epoch 3: perplexity", said)
        result = json.loads((unbroken / "result.json").read_text())
        self.assertLess(result["test perplexity"], 25)  # 30 words

        self.kill(killed, "epoch 1  40%")
        self.kill(killed, "epoch 2:")
        again = self.train(killed)
        self.assertNotIn("epoch 1:", again)
        self.assertEqual(self.newest(killed), self.newest(unbroken))
        self.assertEqual(json.loads((killed / "result.json").read_text()), result)
        self.assertEqual(self.values(killed), self.values(unbroken))

    def values(self, run):
        """What the log says that does not depend on time."""
        rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        names = ("update", "loss", "learning_rate", "gradient_norm", "validation/perplexity")
        return [{name: row[name] for name in names if name in row} for row in rows]

    def test_a_finished_run_that_is_started_again_changes_nothing(self):
        run = self.folder / "run"
        self.train(run, "--cell", "GRU", "--tied")
        before, result = self.newest(run), (run / "result.json").read_text()
        self.train(run, "--cell", "GRU", "--tied")
        self.assertEqual(self.newest(run), before)
        self.assertEqual((run / "result.json").read_text(), result)

    def test_missing_text_is_refused_with_where_to_get_it(self):
        process = self.start(self.folder / "run", "--data", str(self.folder))
        said, _ = process.communicate(timeout=800)
        self.assertEqual(process.returncode, 10, said)
        self.assertIn(f"{self.folder}/train.txt: is missing. Get WikiText-2", said)
        self.assertIn("https://github.com/pytorch/examples/", said)


if __name__ == "__main__":
    PROGRAM, LAUNCHER = sys.argv[1], sys.argv[2:]
    unittest.main(argv=[sys.argv[0]])
