"""The larger examples on small data: they learn, go on after they were killed, and say what is missing.

workload_processes.py CASE PROGRAM LAUNCHER... RANKS    CASE: a class of this file
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

from safetensors.numpy import load_file

from rank_processes import ranks_of


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def test_it_has_the_options_that_the_page_of_the_workloads_names(self):
        said = subprocess.run([PROGRAM, "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
        self.assertIn("--config", said)
        self.assertEqual("--resume" in said, type(self).__name__ != "T5", said)

    def start(self, *arguments):
        return subprocess.Popen([*LAUNCHER, PROGRAM, *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, cwd=self.folder)

    def run_program(self, *arguments, code=0):
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=800)
        self.assertEqual(process.returncode, code, said)
        return said

    def kill(self, line, *arguments):
        """Ends the last rank by SIGKILL once the run has printed `line`. A run that ends before that is a whole one,
        which changes nothing when it is started again."""
        with self.start(*arguments) as process:
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
        """The bytes of the weights of the newest snapshot."""
        path = max(path for path in run.glob("step-*") if path.name[-1].isdigit())
        return path.name, {file.name: file.read_bytes() for file in path.glob("model*.safetensors")}

    def weights(self, run):
        path = max(path for path in run.glob("step-*") if path.name[-1].isdigit())
        return {name: value for file in path.glob("model*.safetensors") for name, value in load_file(file).items()}

    def result(self, run):
        return json.loads((run / "result.json").read_text())


class ResNet(Case):
    SMALL = ("--synthetic", "--width", "4", "--batch-size", "32", "--learning-rate", "0.05")

    def test_a_killed_run_ends_like_an_unbroken_one(self):
        arguments = (*self.SMALL, "--epochs", "3", "--save-every", "3", "--resume", "--run")
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        said = self.run_program(*arguments, unbroken)
        self.assertIn("epoch 3: accuracy", said)
        self.kill("epoch 1  60%", *arguments, killed)
        self.kill("epoch 2: accuracy", *arguments, killed)
        self.assertNotIn("epoch 1:", self.run_program(*arguments, killed))
        self.assertEqual(self.newest(killed), self.newest(unbroken))
        self.assertEqual(self.result(killed)["best test accuracy"], self.result(unbroken)["best test accuracy"])

    def test_it_learns_and_fine_tuning_with_frozen_norms_keeps_their_statistics(self):
        first = self.folder / "first"
        self.run_program(*self.SMALL, "--epochs", "5", "--plain-images", "--min-accuracy", "0.5", "--run", first)
        before = self.weights(first)
        for level in ("O1", "O2", "O3"):
            run = self.folder / level
            self.run_program(*self.SMALL, "--epochs", "1", "--precision", level, "--finetune", first, "--freeze-norms",
                             "--classes", "7", "--run", run)
            after, moved = self.weights(run), 0
            for name, value in after.items():
                if "bn" in name or "downsample.1" in name:
                    # At O3 the norms have 16 bits, too.
                    wrong = abs(value - before[name]).max() > (2**-8 * abs(before[name]).max() if level == "O3" else 0)
                    self.assertFalse(wrong, f"{level}: {name} has drifted")
                elif not name.startswith("fc."):
                    moved += (value != before[name]).any()
            self.assertGreater(moved, 15, level)

    def test_a_file_of_options_is_read_and_an_unknown_option_is_refused(self):
        config = self.folder / "resnet.toml"
        config.write_text('synthetic = true\nwidth = 4\nbatch-size = 160\nepochs = 3\nrun = "from_file"\n')
        self.run_program("--config", config, "--epochs", "1")
        self.assertEqual(self.result(self.folder / "from_file")["updates"], 2)
        config.write_text("widht = 4\n")
        self.assertIn("widht", self.run_program("--config", config, "--synthetic", code=2))

    def test_missing_images_are_refused_with_where_to_get_them(self):
        said = self.run_program(code=10)
        self.assertIn("https://www.cs.toronto.edu/~kriz/cifar.html", said)


class Tweets(Case):
    def test_it_learns_and_a_killed_run_ends_like_an_unbroken_one(self):
        arguments = ("--epochs", "3", "--save-every", "10", "--min-accuracy", "0.6", "--resume", "--run")
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        self.run_program(*arguments, unbroken)
        self.kill("epoch 2: accuracy", *arguments, killed)
        self.run_program(*arguments, killed)
        self.assertEqual(self.newest(killed), self.newest(unbroken))
        self.assertEqual(self.result(killed), self.result(unbroken))

    def test_checkpointing_changes_no_bit(self):
        weights = []
        for activations in ("plain", "checkpoint", "automatic", "2MiB"):
            run = self.folder / activations
            self.run_program("--epochs", "1", "--activations", activations, "--run", run)
            weights.append(self.newest(run))
            self.assertEqual(weights[-1], weights[0], activations)

    def test_tweets_are_read_from_files(self):
        (self.folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\ngood\nbad\nday\n##s\n")
        rows = "".join(f'{i},"a {word} day, ""days""",x,{mood}\n' for i in range(20)
                       for word, mood in (("good", "positive"), ("bad", "negative"), ("odd", "neutral")))
        (self.folder / "tweets.csv").write_text("textID,text,selected_text,sentiment\n" + rows)
        files = ("--tweets", "tweets.csv", "--vocabulary", "vocab.txt", "--epochs", "8")
        self.run_program(*files, "--min-accuracy", "0.9", "--batch-size", "6")
        said = self.run_program("--tweets", "none.csv", "--vocabulary", "vocab.txt", code=10)
        self.assertIn("none.csv: cannot be opened", said)
        self.assertIn("https://www.kaggle.com/c/tweet-sentiment-extraction", said)

    def test_the_table_of_memory_and_time_is_printed(self):
        said = self.run_program("--compare", "--layers", "6", "--length", "32", "--batch-size", "8")
        for name in ("plain", "checkpoint", "budget of 39 %"):
            self.assertIn(f"\n{name} ", said)
        costs = json.loads((self.folder / "runs/tweet_sentiment/compare.json").read_text())
        peaks = [costs[f"{name}: peak, MiB"] for name in ("plain", "checkpoint", "budget of 39 %")]
        self.assertLess(peaks[1], 0.6 * peaks[0])
        self.assertLess(peaks[2], 0.6 * peaks[0])


class Device(Case):
    def test_it_learns_within_a_budget(self):
        self.run_program("--activations", "automatic", "--epochs", "4", "--min-accuracy", "0.6")


class Gan(Case):
    def test_a_killed_run_ends_like_an_unbroken_one(self):
        arguments = ("--steps", "60", "--save-every", "10", "--resume", "--run")
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        self.run_program(*arguments, unbroken)
        self.kill("train  60%", *arguments, killed)
        self.run_program(*arguments, killed)
        for network in ("generator", "discriminator"):
            self.assertEqual(self.newest(killed / network), self.newest(unbroken / network))
        result = self.result(unbroken)
        self.assertEqual(self.result(killed), result)
        self.assertEqual(result["generator's updates"], 60)


class Gpt2(Case):
    def setUp(self):
        super().setUp()
        visible = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        hidden = [byte for byte in range(256) if byte not in visible]
        letters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
        merges = [("t", "h"), ("th", "e"), (letters[ord(" ")], "the")]
        tokens = [*letters.values(), *("".join(pair) for pair in merges), "<|endoftext|>"]
        tokenizer = self.folder / "gpt2-tokenizer"
        tokenizer.mkdir()
        (tokenizer / "encoder.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
        (tokenizer / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
        (self.folder / "text.txt").write_text("the cat and the dog and the bird. " * 60)

    SMALL = ("--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--dropout", "0",
             "--learning-rate", "3e-2", "--batch-size", "4")

    def test_it_learns_to_write_and_its_weights_load_again(self):
        said = self.run_program(*self.SMALL, "--text", "text.txt", "--epochs", "6", "--prompt", "the cat",
                                "--tokens", "12", "--temperature", "0")
        self.assertLess(self.result(self.folder / "runs/gpt2")["held-out perplexity"], 3)
        self.assertIn("\nthe cat and the", said)

    def test_a_killed_run_ends_like_an_unbroken_one(self):
        arguments = (*self.SMALL, "--text", "text.txt", "--epochs", "3", "--save-every", "3", "--resume", "--run")
        unbroken, killed = self.folder / "unbroken", self.folder / "killed"
        self.run_program(*arguments, unbroken)
        self.kill("epoch 2  52%", *arguments, killed)
        self.run_program(*arguments, killed)
        self.assertEqual(self.newest(killed), self.newest(unbroken))

    def test_missing_files_are_refused_with_where_to_get_them(self):
        said = self.run_program("--text", "text.txt", "--tokenizer", "none", code=10)
        self.assertIn("https://openaipublic.blob.core.windows.net/gpt-2/models/124M/", said)
        said = self.run_program(*self.SMALL, "--text", "none.txt", code=10)
        self.assertIn("none.txt: cannot be opened", said)
        self.assertIn("nothing to do", self.run_program(code=2))


class T5(Case):
    def test_the_overflow_is_named_and_two_precisions_cure_it(self):
        said = self.run_program("--steps", "30")
        self.assertIn("block.layer.1.DenseReluDense.wo", said)
        self.assertIn('keep_fp32("', said)
        rows = {line.split("  ")[0]: line.split("  ")[1:] for line in said.splitlines()}
        numbers = {name: " ".join(rest).split() for name, rest in rows.items()}
        self.assertEqual(numbers["fp16"][0], "0")
        for cured in ("fp16, wo kept fp32", "bf16"):
            updates, skipped, loss = numbers[cured]
            self.assertEqual((updates, skipped), ("30", "0"))
            self.assertLess(float(loss), 1.3)


if __name__ == "__main__":
    PROGRAM, LAUNCHER = sys.argv[2], sys.argv[3:]
    unittest.main(argv=[sys.argv[0], sys.argv[1]])
