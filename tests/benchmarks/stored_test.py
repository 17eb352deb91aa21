"""What the harness keeps: the table of the page, and the ratios that --check compares."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import plot_steps
from harness import document, launch, measure, rows, stored


def sample(value):
    return measure.Sample.of([value])


class Document(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "amd-1.md"

    def update(self, *found, **options):
        document.update(self.page, [made_up(*row) for row in found], **options)
        return self.page.read_text(encoding="utf-8")

    def test_a_suite_that_is_measured_again_replaces_its_section_alone(self):
        self.update(("old", 1.0, "step"), ("kept", 1.0, "update"))
        text = self.update(("new", 1.0, "step"))
        self.assertTrue(text.startswith("# Measured rows: amd-1\n"))
        self.assertEqual(re.findall(r"^## (.*)$", text, re.M), ["step", "update"])
        self.assertIn("new", text)
        self.assertIn("kept", text)
        self.assertNotIn("old", text)
        self.assertEqual(len(re.findall(r"^Measured \d{4}-\d\d-\d\d on ", text, re.M)), 2)
        self.assertEqual(text, self.update(("new", 1.0, "step")))

    def test_remarks_stand_between_the_machine_and_the_table_of_their_suite(self):
        text = self.update(("a", 1.0, "step"), ("b", 1.0, "nodes"), remarks={"nodes": "far"})
        self.assertIn(f"## nodes\n{document.machine()}\n- far\n\n| suite |", text)
        self.assertIn(f"## step\n{document.machine()}\n\n| suite |", text)

    def test_rows_that_a_pattern_chose_replace_their_own_and_no_others(self):
        self.update(("gpt", 1.0), ("lstm", 1.0))
        text = self.update(("gpt", 3.0), ("gpt two", 1.0), only="gpt")
        cells = [line.split(" | ")[1:7:5] for line in text.splitlines() if line.startswith("| step")]
        self.assertEqual(cells, [["gpt", "3.000"], ["lstm", "1.000"], ["gpt two", "1.000"]])
        self.assertEqual(text.count("| suite |"), 1)
        self.assertIn(f"- Rows that match `gpt`: {document.machine()}", text)
        self.assertIn("gpt two", self.update(("gpt two", 1.0, "c"), only="gpt"))


def made_up(name, ratio, suite="step", peer="ddp"):
    return rows.Row(suite, name, 1.0, ratio, peer, "ms", "lower", ratio, 1.0, 1.0, 3)


class Chart(unittest.TestCase):
    def test_that_of_the_manual_shows_the_stored_ratios(self):
        self.assertEqual(plot_steps.SVG.read_text(encoding="utf-8"), plot_steps.drawn())


class Stored(unittest.TestCase):
    AMD = "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: fpu avx2 avx512f\n"
    RATIOS = {"step / gpt / ddp": 2.0, "step / lstm / ddp": 1.0, "update / sgd / copy": 1.5}

    def compare(self, measured, suites=("step",), only=""):
        return stored.compare(measured, self.RATIOS, suites, re.compile(only))

    def test_a_family_is_vendor_family_and_vectors(self):
        self.assertEqual(stored.family(self.AMD), "amd-26-avx512")
        self.assertEqual(stored.family(self.AMD.replace(" avx512f", "")), "amd-26-avx2")
        intel = self.AMD.replace("AuthenticAMD", "GenuineIntel").replace("26", "6")
        self.assertEqual(stored.family(intel), "intel-6-avx512")

    def test_a_machine_that_is_limited_to_avx2_is_a_family_of_its_own(self):
        with unittest.mock.patch.dict(os.environ):
            own = stored.own_family()
            launch.limit_vectors("avx2")
            self.assertEqual(stored.own_family(), own + "-as-avx2")
            self.assertEqual(os.environ["ATEN_CPU_CAPABILITY"], "avx2")
            self.assertIn(", limited to avx2, ", document.machine())

    def test_compiled_code_of_other_vectors_is_not_taken(self):
        with unittest.mock.patch.dict(os.environ):
            folders = []
            for vectors in ("", "avx2"):
                if vectors:
                    launch.limit_vectors(vectors)
                environment = launch._environment(pathlib.Path("scratch"), pathlib.Path("build"))
                folders.append(environment["TORCHINDUCTOR_CACHE_DIR"])
        self.assertEqual(folders, ["build/torch-inductor/widest", "build/torch-inductor/avx2"])

    def test_a_ratio_of_nine_tenths_passes_and_a_lower_one_fails(self):
        found = self.compare([made_up("gpt", 1.8), made_up("lstm", 1.3)])
        self.assertFalse(found.failed)
        self.assertEqual(found.compared, 2)
        found = self.compare([made_up("gpt", 1.79), made_up("lstm", 1.0)])
        self.assertTrue(found.failed)
        self.assertEqual(found.fallen, {"step / gpt / ddp": "step / gpt / ddp: 1.790, stored 2.000"})
        self.assertIn("1 below 0.9", found.as_text())

    def test_the_best_of_all_runs_of_a_row_counts(self):
        ours, peer = measure.Sample.of([1.0, 1.0, 1.0]), measure.Sample.of([1.5, 1.9, 1.6])
        noisy = rows.compare("step", "gpt", ours, peer, "ddp", "ms")
        self.assertEqual((noisy.ratio, noisy.ratios), (1.6, [1.5, 1.9, 1.6]))
        self.assertFalse(self.compare([noisy], only="gpt").failed)
        self.assertTrue(self.compare([made_up("gpt", 1.6)], only="gpt").failed)
        self.assertFalse(self.compare([made_up("gpt", 1.6), made_up("gpt", 1.85)], only="gpt").failed)
        self.assertTrue(self.compare([made_up("gpt", 1.6), made_up("gpt", 1.7)], only="gpt").failed)

    def test_a_row_whose_fastest_calls_are_as_good_as_stored_has_not_fallen(self):
        def failed(fast, stored_fast):
            row = made_up("gpt", 1.0)
            row.fast_ratio = fast
            return stored.compare([row], self.RATIOS, ("step",), re.compile("gpt"), stored_fast).failed
        self.assertFalse(failed(1.8, {"step / gpt / ddp": 2.0}))
        self.assertTrue(failed(1.7, {"step / gpt / ddp": 2.0}))
        self.assertTrue(failed(1.8, {}))
        self.assertTrue(failed(None, {"step / gpt / ddp": 2.0}))

    def test_rows_that_fell_are_named_by_suite_to_be_measured_again(self):
        patterns = stored.rows_of(["step / lstm 3 ranks / ddp", "step / gpt / ddp", "update / adamw (28 B) / copy"])
        self.assertEqual(set(patterns), {"step", "update"})
        self.assertTrue(patterns["step"].search("gpt") and patterns["step"].search("lstm 3 ranks"))
        self.assertIsNone(patterns["step"].search("gpt fp32-wire"))
        self.assertTrue(patterns["update"].search("adamw (28 B)"))

    def test_a_stored_row_that_no_longer_comes_fails_where_it_was_asked_for(self):
        self.assertEqual(self.compare([made_up("gpt", 2.0)]).vanished, ["step / lstm / ddp"])
        self.assertFalse(self.compare([made_up("gpt", 2.0)], only="gpt").failed)
        absent = rows.absent("step", "lstm", sample(0.1), "ddp", "ms", "not installed")
        self.assertTrue(self.compare([made_up("gpt", 2.0), absent]).failed)

    def test_a_stored_row_of_an_optional_peer_that_is_not_installed_is_named_and_does_not_fail(self):
        absent = rows.absent("step", "lstm", sample(0.1), "ddp", "ms", "not installed", optional=True)
        found = self.compare([made_up("gpt", 2.0), absent])
        self.assertFalse(found.failed)
        self.assertEqual(found.missing, ["step / lstm / ddp"])
        self.assertIn("peer not installed, so not compared: step / lstm / ddp", found.as_text())
        self.assertTrue(self.compare([absent]).failed)

    def test_a_new_row_is_named_and_does_not_fail(self):
        found = self.compare([made_up("gpt", 2.0), made_up("lstm", 1.0), made_up("vit", 0.1)])
        self.assertFalse(found.failed)
        self.assertEqual(found.unknown, ["step / vit / ddp"])

    def test_a_comparison_of_nothing_fails(self):
        self.assertTrue(self.compare([made_up("vit", 0.1)], suites=(), only="vit").failed)

    def test_rows_against_a_limit_are_neither_stored_nor_compared(self):
        small = made_up("beyond c++", 0.1, peer=rows.LIMIT)
        self.assertEqual(rows.against("step", "n", sample(1.0), 1.0, "ms").peer_name, rows.LIMIT)
        found = self.compare([made_up("gpt", 2.0), made_up("lstm", 1.0), small])
        self.assertEqual((found.compared, found.unknown), (2, []))
        with tempfile.TemporaryDirectory() as folder:
            stored.save("vax-1-plain", "a VAX", [made_up("gpt", 2.0), small], pathlib.Path(folder))
            self.assertEqual(list(stored.load("vax-1-plain", pathlib.Path(folder))),
                             ["step / gpt / ddp"])

    def test_what_is_stored_is_read_again_and_other_rows_are_kept(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with self.assertRaisesRegex(stored.NothingStored, "vax-1-plain"):
                stored.load("vax-1-plain", folder)
            stored.save("vax-1-plain", "a VAX", [made_up("gpt", 2.0), made_up("lstm", 1.0)], folder)
            stored.save("vax-1-plain", "a VAX", [made_up("gpt", 3.0)], folder)
            self.assertEqual(stored.load("vax-1-plain", folder),
                             {"step / gpt / ddp": 3.0, "step / lstm / ddp": 1.0})
            self.assertEqual(stored.load_fast("vax-1-plain", folder), {})
            row = made_up("gpt", 3.0)
            row.fast_ratio = 2.5
            stored.save("vax-1-plain", "a VAX", [row], folder)
            stored.save("vax-1-plain", "a VAX", [made_up("lstm", 1.0)], folder)
            self.assertEqual(stored.load_fast("vax-1-plain", folder), {"step / gpt / ddp": 2.5})

    def test_every_stored_key_names_suite_row_and_peer(self):
        files = sorted(stored.RESULTS.glob("*.json"))
        self.assertTrue(files)
        for file in files:
            for name, ratio in stored.load(file.stem).items():
                self.assertEqual(len(name.split(" / ")), 3, name)
                self.assertGreater(ratio, 0)

    def test_check_ends_with_1_where_a_ratio_fell(self):
        for ratio, code in ((1.9, 0), (1.7, 1)):
            with tempfile.TemporaryDirectory() as name:
                stored.save(stored.own_family(), "here", [made_up("gpt", 2.0, "fake")],
                            pathlib.Path(name))
                program = CHECKED.format(results=name, ratio=ratio)
                done = subprocess.run([sys.executable, "-c", program], text=True,
                                      capture_output=True, check=False)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertIn("1 rows compared", done.stdout)


# run.py as `run.py step --check`, with a suite that gives one row at once.
CHECKED = """
import pathlib, sys, types
import run
from harness import rows, stored
stored.RESULTS = pathlib.Path({results!r})
row = rows.Row("fake", "gpt", 1.0, 1.0, "ddp", "ms", "lower", {ratio}, 1.0, 1.0, 3)
run._suite = lambda name: types.SimpleNamespace(run=lambda measurement, only: [row])
sys.argv = ["run.py", "step", "--check", "--build", {results!r}]
run.main()
"""


if __name__ == "__main__":
    unittest.main()
