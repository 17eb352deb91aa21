"""The benchmark harness: what it computes, and what it does when a program fails."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from harness import document, launch, load, measure, rows

RECORD = """
import json, os
path = os.path.join(os.environ["LOCKSTEP_BENCH_RECORDS"], str(os.getpid()) + ".jsonl")
record = dict(name="n", variant="v", begin=[0.0, 1.0], end=[0.5, 1.25], parameters=7)
open(path, "w").write(json.dumps(record) + "\\n")
"""


def sample(*values):
    result = measure.Sample()
    for value in values:
        result.add([value])
    return result


class Times(unittest.TestCase):
    RANKS = [{"begin": [1.0, 5.0], "end": [2.0, 6.0]}, {"begin": [1.5, 4.0], "end": [1.75, 7.0]}]

    def test_ranks_together_take_from_the_last_arrival_to_the_last_departure(self):
        self.assertEqual(measure.together(self.RANKS), [0.5, 2.0])

    def test_each_rank_counts_on_its_own(self):
        self.assertEqual(measure.each(self.RANKS), [1.0, 1.0, 0.25, 3.0])

    def test_a_sample_is_the_median_of_run_medians(self):
        result = measure.Sample()
        for values in ([1, 2, 9], [4, 4, 4], [3, 7, 8]):
            result.add(values)
        self.assertEqual((result.median, result.minimum, len(result.medians)), (4, 1, 3))


class Rows(unittest.TestCase):
    def test_a_ratio_above_one_means_ours_is_better(self):
        row = rows.compare("s", "n", sample(0.002), sample(0.006), "p", "ms", target=2.0)
        self.assertAlmostEqual(row.ratio, 3.0)
        self.assertAlmostEqual(row.ours, 2.0)
        self.assertFalse(row.missed)

    def test_a_row_below_its_target_says_so(self):
        row = rows.compare("s", "n", sample(0.004), sample(0.006), "p", "ms", target=2.0)
        self.assertTrue(row.missed)
        self.assertIn("missed", rows.as_text([row]))

    def test_a_limit_is_in_the_unit_of_the_row(self):
        row = rows.against("s", "n", sample(5e-6), 10.0, "us", target=1.0)
        self.assertAlmostEqual(row.ratio, 2.0)

    def test_a_peer_that_is_not_here_has_no_ratio_and_misses_nothing(self):
        row = rows.absent("s", "n", sample(0.002), "p", "ms", "not installed")
        self.assertFalse(row.missed)
        self.assertIn("not installed", rows.as_text([row]))
        self.assertIsNone(row.as_json()["ratio"])

    def test_a_count_of_nothing_beats_any_target(self):
        self.assertFalse(rows.counted("s", "n", 0.0, 1.0, "limit", "%", target=1.0).missed)
        self.assertTrue(rows.counted("s", "n", 2.0, 1.0, "limit", "%", target=1.0).missed)

    def test_json_has_the_agreed_keys(self):
        row = rows.compare("s", "n", sample(1.0), sample(1.0), "p", "ms")
        self.assertLessEqual({"suite", "name", "ours", "peer", "peer_name", "unit", "better",
                              "ratio", "min", "median", "runs"}, row.as_json().keys())


class Launch(unittest.TestCase):
    BUILD = pathlib.Path("unused")

    def test_records_of_a_pair_come_from_both_processes(self):
        job = launch.Job("pair", (sys.executable, "-c", RECORD), variant="mine")
        samples = measure.Measurement(self.BUILD, 2, 0).alternate({"job": job}, measure.each)
        self.assertEqual(samples.keys(), {("n", "mine")})
        self.assertEqual(samples["n", "mine"].medians, [0.375, 0.375])
        self.assertEqual(samples["n", "mine"].notes["parameters"], [7, 7])

    def test_a_failing_program_is_reported_with_its_last_lines(self):
        program = "import sys; sys.exit('no such model')"
        with self.assertRaisesRegex(launch.Failed, "no such model"):
            launch.run(launch.Job("solo", (sys.executable, "-c", program)), self.BUILD)

    def test_an_optional_program_that_fails_costs_its_own_samples_alone(self):
        failing = (sys.executable, "-c", "import sys; sys.exit('no compiler')")
        good = launch.Job("pair", (sys.executable, "-c", RECORD), variant="mine")
        jobs = {"peer": launch.Job("solo", failing, optional=True), "ours": good}
        samples = measure.Measurement(self.BUILD, 2, 0).alternate(jobs, measure.each)
        self.assertEqual(samples["n", "mine"].medians, [0.375, 0.375])
        jobs["peer"] = launch.Job("solo", failing)
        with self.assertRaisesRegex(launch.Failed, "no compiler"):
            measure.Measurement(self.BUILD, 2, 0).alternate(jobs, measure.each)

    def test_processor_time_of_others_is_noticed(self):
        with subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"],
                              stdout=subprocess.PIPE) as busy:
            busy.stdout.readline()
            with load.ForeignLoad() as foreign:
                subprocess.run([sys.executable, "-c", "import time; time.sleep(1)"], check=True)
            busy.kill()
        self.assertGreater(foreign.cores, measure.LOUD_CORES)


class Document(unittest.TestCase):
    def test_the_table_replaces_only_what_is_between_the_markers(self):
        row = rows.compare("s", "new row", sample(1.0), sample(1.0), "p", "ms")
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.md"
            page.write_text(f"above\n{document.BEGIN}\nold\n{document.END}\nbelow\n",
                            encoding="utf-8")
            document.update(page, [row])
            text = page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("above\n") and text.endswith("\nbelow\n"))
        self.assertIn("new row", text)
        self.assertNotIn("old", text)
        self.assertRegex(text, re.compile(r"Measured \d{4}-\d\d-\d\d on "))


if __name__ == "__main__":
    unittest.main()
