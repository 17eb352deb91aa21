"""scripts/workloads: what it keeps of a side that it does not run."""

import json
import pathlib
import tempfile
import unittest
from unittest import mock

import workloads


def program(command, log, processes=1, resume=False):
    """Stands for both programs: writes what they write; the accuracy is that of the number of epochs."""
    folder = pathlib.Path(command[command.index("--run") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    epochs = int(command[command.index("--epochs") + 1])
    accuracy = epochs / 10
    (folder / "result.json").write_text(json.dumps({"test accuracy": accuracy, "curve": [0.1] * epochs}))
    rows = [{"update": 1, "loss": 1}, *({"update": epoch, "validation/accuracy": 0.2} for epoch in range(epochs)),
            {"update": epochs - 1, "validation/accuracy": 0.2}]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Sides(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.programs = mock.Mock(side_effect=program)
        patched = mock.patch.object(workloads, "run", self.programs)
        patched.start()
        self.addCleanup(patched.stop)

    def row(self, side, epochs=3, ranks=2, resume=False):
        options = mock.Mock(quick=False, ranks=ranks, side=side, resume=resume, build=pathlib.Path("build"))
        runs = workloads.Runs(options, {"train": "train.bin"}, self.folder)
        workload = workloads.Workload("08_resnet", "resnet.py", {"--train": "train"}, f"--epochs {epochs}", "",
                                      ["test accuracy"], "accuracy")
        rows, curves = runs.do("resnet", workload)
        return rows[0]["ours"], rows[0]["python"], rows[0]["relative"], {key: len(curves[key]) for key in curves}

    def test_without_a_side_both_programs_run(self):
        self.assertEqual(self.row(None), (0.3, 0.3, 1.0, {"lockstep": 3, "Python": 3}))
        self.assertEqual(self.programs.call_count, 2)

    def test_a_side_that_has_not_run_is_left_open(self):
        self.assertEqual(self.row("python"), (None, 0.3, None, {"Python": 3}))
        self.assertEqual(self.programs.call_count, 1)

    def test_the_other_side_is_kept(self):
        self.row("lockstep")
        self.assertEqual(self.row("python"), (0.3, 0.3, 1.0, {"lockstep": 3, "Python": 3}))
        self.assertEqual(self.programs.call_count, 2)

    def test_the_other_side_is_not_taken_from_a_run_with_other_options(self):
        self.row("lockstep", epochs=2)
        self.assertEqual(self.row("python")[0], None)
        self.row("lockstep", ranks=3)
        self.assertEqual(self.row("python")[0], None)

    def test_a_run_that_failed_is_no_result(self):
        self.row(None)

        def fails(command, log, processes=1, resume=False):
            program(command, log)
            raise SystemExit(1)

        self.programs.side_effect = fails
        with self.assertRaises(SystemExit):
            self.row("lockstep")
        self.programs.side_effect = program
        self.assertEqual(self.row("python")[0], None)

    def test_resume_leaves_what_has_ended_as_it_is(self):
        self.row(None)
        self.assertEqual(self.row(None, resume=True), (0.3, 0.3, 1.0, {"lockstep": 3, "Python": 3}))
        self.assertEqual(self.programs.call_count, 2)

    def test_resume_goes_on_with_what_was_interrupted(self):
        self.programs.side_effect = SystemExit(1)
        with self.assertRaises(SystemExit):
            self.row("lockstep")
        self.programs.side_effect = program
        self.row("lockstep", resume=True)
        self.assertEqual(self.programs.call_args.args[0][-1], "--resume")

    def test_resume_starts_anew_what_had_other_options_or_never_began(self):
        for epochs in 3, 2:
            self.row("lockstep", epochs=epochs, resume=True)
            self.assertNotIn("--resume", self.programs.call_args.args[0])


class Pictures(unittest.TestCase):
    def test_a_curve_alone_is_drawn_in_its_own_colour(self):
        alone, both = (workloads.svg("title", curves) for curves in
                       ({"Python": [1, 2]}, {"lockstep": [1, 3], "Python": [1, 2]}))
        self.assertIn('stroke="#6e7781" stroke-width="2" stroke-dasharray', alone)
        self.assertNotIn("#1f6feb", alone)
        self.assertIn('stroke="#1f6feb"', both)


class Document(unittest.TestCase):
    def test_its_table_is_read_back_as_it_was_written(self):
        rows = [{"workload": "tweets", "metric": "accuracy", "ours": 0.72, "python": 0.75, "relative": 0.96},
                {"workload": "lstm", "metric": "perplexity", "ours": 139.9, "python": None, "relative": None}]
        settings = {"tweets": "`--layers 4`", "lstm": "`--epochs 6`"}
        text = f"# Page\n{workloads.BEGIN}\n{workloads.table(rows, settings)}\n\n![p](p.svg)\n{workloads.END}\n"
        self.assertEqual(workloads.documented(text), {"rows": rows, "settings": settings})


if __name__ == "__main__":
    unittest.main()
