"""The benchmark harness: what it computes, and what it does when a program fails."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from harness import cores, intel, launch, load, measure, rows
from suites import allreduce, data, nodes, startup, step

RECORD = """
import json, os
path = os.path.join(os.environ["LOCKSTEP_BENCH_RECORDS"], str(os.getpid()) + ".jsonl")
record = dict(name="n", variant="v", begin=[0.0, 1.0], end=[0.5, 1.25], parameters=7,
              core=min(os.sched_getaffinity(0)), ranks=os.environ.get("WORLD_SIZE"), rank=os.environ.get("RANK"))
open(path, "w").write(json.dumps(record) + "\\n")
"""

# An mpiexec that records what it is asked to start.
MPIEXEC = """
import json, os, sys
path = os.path.join(os.environ["LOCKSTEP_BENCH_RECORDS"], "mpiexec.jsonl")
record = dict(arguments=" ".join(sys.argv[1:]), yields=os.environ.get("OMPI_MCA_mpi_yield_when_idle"))
open(path, "w").write(json.dumps(record) + "\\n")
"""


def sample(*values):
    return measure.Sample.of(values)


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

    def test_the_fastest_tenth_is_of_the_calls_of_all_runs(self):
        result = measure.Sample()
        for values in ([20.0] * 5, list(map(float, range(16)))):
            result.add(values)
        self.assertEqual((result.fast, measure.Sample.of([3.0]).fast), (2.0, 3.0))


class Rows(unittest.TestCase):
    def test_the_fast_ratio_is_that_of_the_fastest_tenths_of_both(self):
        row = rows.compare("s", "n", sample(0.002, 0.009, 0.009), sample(0.006, 0.006, 0.006), "p", "ms")
        self.assertAlmostEqual(row.fast_ratio, 6 / 3.4)
        self.assertIn("1.765", rows.as_markdown([row]))

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


LOOK = """#!{python}
import pathlib, sys
looks = pathlib.Path(__file__).with_name("looks")
count = len(looks.read_text()) if looks.exists() else 0
looks.write_text("x" * (count + 1))
print('{{"line_ns": %d, "rates": [%d, 50]}}' % (30 + count, 50 - 10 * count))
"""


class LooksAtTheCores(unittest.TestCase):
    def build(self, text=LOOK):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name) / "benchmarks" / cores.PROGRAM
        program.parent.mkdir()
        program.write_text(text.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)
        return pathlib.Path(folder.name)

    def test_one_comes_before_each_run(self):
        job = launch.Job("group", (sys.executable, "-c", RECORD), variant="mine")
        measurement = measure.Measurement(self.build(), 1, 0)
        measurement.with_rounds(3).alternate({"job": job}, measure.each)
        self.assertEqual((measurement.cores.line_ns, measurement.cores.rates), ([30, 31, 32], [50, 40, 30]))
        self.assertEqual(measurement.cores.as_text(), "3 looks at the cores (10, 50, 90 %): 30, 31, 32 ns apart; the slower "
                                                      "one at 0.64, 0.80, 0.96 of the best rate")

    def test_a_program_that_is_not_built_or_fails_costs_nothing_but_its_looks(self):
        found = cores.Cores()
        found.look(pathlib.Path("unused"))
        found.look(self.build("#!{python}\nimport sys\nsys.exit('no such core')\n"))
        self.assertEqual(found.as_text(), "")


class Launch(unittest.TestCase):
    BUILD = pathlib.Path("unused")

    def test_records_of_a_group_come_from_all_processes(self):
        job = launch.Job("group", (sys.executable, "-c", RECORD), variant="mine")
        samples = measure.Measurement(self.BUILD, 2, 0).alternate({"job": job}, measure.each)
        self.assertEqual(samples.keys(), {("n", "mine")})
        self.assertEqual(samples["n", "mine"].medians, [0.375, 0.375])
        self.assertEqual(samples["n", "mine"].notes["parameters"], [7, 7])

    def test_more_ranks_than_cores_take_the_cores_in_turn(self):
        first, second = launch.cores()
        records = launch.run(launch.Job("group", (sys.executable, "-c", RECORD), ranks=3), self.BUILD)
        self.assertEqual(sorted((one["rank"], one["core"], one["ranks"]) for one in records),
                         [("0", first, "3"), ("1", second, "3"), ("2", first, "3")])

    def test_ranks_with_a_core_each_need_as_many_cores(self):
        with self.assertRaisesRegex(launch.Failed, "need 99999 cores"):
            launch.run(launch.Job("group", ("unused",), ranks=2, cores=99999), self.BUILD)
        physical = launch.physical_cores()
        self.assertEqual(launch.cores(len(physical)) if len(physical) >= 2 else physical, physical)

    def test_an_mpi_that_lies_elsewhere_is_found_and_a_surrounding_one_is_not(self):
        program = "import os; print(os.environ.get('PMIX_RANK'), os.environ.get('PMIX_PKGLIBDIR')); raise SystemExit(1)"
        with unittest.mock.patch.dict(os.environ, {"PMIX_RANK": "7", "PMIX_PKGLIBDIR": "there"}):
            with self.assertRaisesRegex(launch.Failed, "None there"):
                launch.run(launch.Job("solo", (sys.executable, "-c", program)), self.BUILD)

    def test_another_mpiexec_starts_each_rank_on_its_core(self):
        first, second = launch.cores()
        for ranks, cores, yields in ((2, [first, second], None), (3, [first, second, first], "1")):
            job = launch.Job("mpi", ("ours", 5), ranks=ranks, mpiexec=(sys.executable, "-c", MPIEXEC))
            record, = launch.run(job, self.BUILD)
            wanted = [f"-n 1 taskset -c {core} ours 5" for core in cores]
            self.assertEqual(record["arguments"], " : ".join(wanted))
            self.assertEqual(record["yields"], yields)

    def test_a_failing_program_is_reported_with_its_last_lines(self):
        program = "import sys; sys.exit('no such model')"
        with self.assertRaisesRegex(launch.Failed, "no such model"):
            launch.run(launch.Job("solo", (sys.executable, "-c", program)), self.BUILD)

    def test_an_optional_program_that_fails_costs_its_own_samples_alone(self):
        failing = (sys.executable, "-c", "import sys; sys.exit('no compiler')")
        good = launch.Job("group", (sys.executable, "-c", RECORD), variant="mine")
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


class FakeMeasurement:
    """Gives a suite, instead of times of programs, the samples of `records`, and notes the jobs."""

    def __init__(self, records=(), build=pathlib.Path("unused")):
        self.records, self.build, self.jobs, self.rounds = records, build, {}, 2

    def with_rounds(self, rounds):
        self.rounds = rounds
        return self

    def alternate(self, jobs, seconds_of):
        self.jobs.update(jobs)
        result = {}
        for one in self.records:
            result[one["name"], one["variant"]] = sample(*seconds_of([one]))
            result[one["name"], one["variant"]].notes["parameters"] = [one["parameters"]]
        return result


def record(name, variant, *seconds):
    return {"name": name, "variant": variant, "begin": [0.0] * len(seconds), "end": list(seconds), "parameters": 7}


class DataSuite(unittest.TestCase):
    RECORDS = [record(f"{workers} workers", "wait", 0.0, 0.0, 0.03) for workers in (0, 1, 2)]
    RECORDS += [record(f"{workers} workers", "step", 0.29, 0.49) for workers in (0, 1, 2)]
    RECORDS += [record("loading alone", "wait", 0.01)]

    def test_the_share_is_of_the_whole_run_and_two_percent_of_it_are_allowed(self):
        found = data.run(FakeMeasurement(self.RECORDS), re.compile("resnet18"))
        self.assertEqual(len(found), 3)
        for row in found:
            self.assertAlmostEqual(row.ours, 2.5)
            self.assertEqual((row.peer, row.unit, row.peer_name), (2.0, "%", rows.LIMIT))
            self.assertTrue(row.missed)

    def test_loading_alone_is_compared_with_the_step(self):
        row, = data.run(FakeMeasurement(self.RECORDS), re.compile("alone"))
        self.assertAlmostEqual(row.ratio, 39.0)

    def test_nothing_runs_where_no_row_is_wanted(self):
        measurement = FakeMeasurement()
        self.assertEqual(data.run(measurement, re.compile("lstm")), [])
        self.assertEqual(measurement.jobs, {})


class CrowdedRanks(unittest.TestCase):
    def test_a_step_of_more_ranks_has_rows_against_the_tuned_peers(self):
        variants = ["ours-fp16", "ours-fp32", "bound-fp16", "bound-fp32", *list(step.CROWDED_PEERS)[1:]]
        measurement = FakeMeasurement([record("lstm", variant, 0.5) for variant in variants])
        found = step.run(measurement, re.compile("lstm 4 ranks"))
        self.assertEqual({job.variant for job in measurement.jobs.values()}, set(variants))
        self.assertEqual({job.ranks for job in measurement.jobs.values()}, {4})
        self.assertEqual({job.launch for job in measurement.jobs.values()}, {"mpi", "group"})
        self.assertEqual({row.name for row in found}, {"lstm 4 ranks", "lstm 4 ranks fp32-wire"})
        self.assertEqual({row.peer_name for row in found}, set(step.CROWDED_PEERS))
        self.assertEqual([row.name for row in found if row.ratio is None], [])

    def test_an_option_of_a_step_is_compared_by_updates_of_all_their_micro_batches(self):
        calls = {"begin": list(range(8)), "end": [i + (0.9 if i % 4 == 3 else 0.1) for i in range(8)]}
        slow = {"begin": calls["begin"], "end": [i + 0.3 for i in range(8)]}
        measurement = FakeMeasurement([{**record("gpt", "accumulate-4", 0, 0), **calls},
                                       {**record("gpt", "reproducible-4", 0, 0), **slow}])
        row, = step.run(measurement, re.compile("gpt reproducible accumulate 4"))
        self.assertEqual((round(row.peer, 6), round(row.ours, 6), row.target), (1200, 1200, 0.87))

    def test_of_the_peers_of_a_step_only_jemalloc_may_be_missing(self):
        variants = ["ours-fp16", "ours-fp32", "bound-fp16", "bound-fp32", "layers-fused", "one-rank", *step.ONE_RANK_PEERS,
                    *(name for name in step.PEERS if name not in ("bound", "python-ddp-jemalloc", "python-ddp-compiled"))]
        measurement = FakeMeasurement([record("gpt", variant, 0.5) for variant in variants])
        absent = {row.peer_name: row for row in step.run(measurement, re.compile("^gpt$")) if row.ratio is None}
        self.assertEqual({name: (row.optional, row.remark) for name, row in absent.items()},
                         {"python-ddp-jemalloc": (True, "not installed: libjemalloc2"),
                          "python-ddp-compiled": (False, "does not run here")})

    def test_an_all_reduce_of_more_ranks_has_rows_against_mpi_and_gloo(self):
        records = [record(f"{dtype} {size}", variant, 0.5) for dtype in ("fp16", "fp32")
                   for size in allreduce.SIZES for variant in ("ours", "mpi", "mpi-custom-op", "gloo")]
        measurement = FakeMeasurement(records)
        found = allreduce.run(measurement, re.compile("3 ranks"))
        self.assertEqual({job.ranks for job in measurement.jobs.values()}, {3})
        self.assertEqual(len(found), 16)
        self.assertEqual([row.peer_name for row in found if row.name == "3 ranks fp16 4KB"], ["mpi-custom-op", "gloo"])


class StartUp(unittest.TestCase):
    def test_python_is_measured_up_to_as_many_ranks_as_have_room(self):
        measurement = FakeMeasurement([record("start", variant, 0.5) for variant in ("ours", "mpi", "python-gloo")])
        peers = {ranks: [row.peer_name for row in startup.run(measurement, re.compile(f"^{ranks} ranks"))]
                 for ranks in (16, 32)}
        self.assertEqual(peers, {16: ["mpi", "python-gloo"], 32: ["mpi"]})

    def test_the_time_counts_from_the_start_of_the_launcher(self):
        with tempfile.TemporaryDirectory() as folder:
            begin = float(launch._environment(pathlib.Path(folder), pathlib.Path("build"))["LOCKSTEP_BENCH_BEGIN"])
        self.assertLess(abs(time.clock_gettime(time.CLOCK_MONOTONIC) - begin), 60.0)


class TwoHosts(unittest.TestCase):
    REDUCTIONS = [record(f"{dtype} {size}", variant, 0.5) for dtype in ("fp16", "fp32")
                  for size in ("4KB", "1MB", "32MB") for variant in ("ours", "mpi", "mpi-custom-op", "gloo")]
    REDUCTIONS += [record(size, "tcp", 0.4) for size in ("1MB", "32MB")]

    def run_suite(self, measurement, only):
        asked = []

        def forecast(build, recorded, network, ranks, options=()):
            asked.append((recorded.name, network, ranks, options))
            return 1.9 if recorded.name.endswith(".1") else 1.8

        self.addCleanup(setattr, nodes, "forecast_of", nodes.forecast_of)
        nodes.forecast_of = forecast
        return nodes.run(measurement, re.compile(only)), asked

    def test_a_step_has_rows_against_the_peers_local_updates_and_the_prediction(self):
        steps = [record("gpt", variant, 1.0, 2.0, 9.0) for variant in ("ours-fp16", "sharded-fp16", "local-16", *nodes.STEP_PEERS)]
        measurement = FakeMeasurement([*self.REDUCTIONS, *steps])
        found, asked = self.run_suite(measurement, "^10gbit 2 x 1 gpt")
        self.assertEqual({(row.name, row.peer_name) for row in found},
                         {("10gbit 2 x 1 gpt", "libtorch-mpi-fused"), ("10gbit 2 x 1 gpt", "python-ddp-fp16"),
                          ("10gbit 2 x 1 gpt local-16", "synchronous"), ("10gbit 2 x 1 gpt prediction", "predicted"),
                          ("10gbit 2 x 1 gpt sharded prediction", "predicted")})
        prediction, sharded = (row for row in found if row.peer_name == "predicted")
        self.assertAlmostEqual(sharded.ratio, 0.95)
        self.assertAlmostEqual(prediction.ours, 2000.0)  # the median, as in the record
        local, = (row for row in found if row.name.endswith("local-16"))
        self.assertAlmostEqual(local.ours, 4000.0)  # the mean: one update of a round exchanges weights
        self.assertAlmostEqual(prediction.ratio, 0.95)  # of the slowest process
        self.assertFalse(prediction.missed)
        network = {"ranks_per_node": 1, "link": {"latency_us": 500000.0, "gigabits_per_second": 10.0,
                                                 "processor_us_per_megabyte": 0.5e6 / ((32 << 20) / 1e6)}}
        self.assertEqual(asked, [(f"gpt-2.json.{rank}", network, 2, options) for options in ((), ("--shard-optimizer",))
                                 for rank in range(2)])
        self.assertEqual({job.link for job in measurement.jobs.values() if job.launch == "hosts"},
                         {"10gbit", nodes.UNLIMITED})

    def test_an_all_reduce_is_compared_with_the_rate_of_the_link_and_with_tcp_alone(self):
        found, _ = self.run_suite(FakeMeasurement(self.REDUCTIONS), "^1gbit 2 x 1 fp16 32MB")
        tcp, = (row for row in found if row.peer_name == "tcp")
        self.assertAlmostEqual(tcp.ratio, 0.8)
        limit, = (row for row in found if row.peer_name == rows.LIMIT)
        self.assertAlmostEqual(limit.peer, 8 * (32 << 20) / 1e9 * 1e3)
        self.assertTrue(limit.missed)

    def test_what_a_sharded_optimizer_sends_is_compared_with_mpi_and_half_of_the_link(self):
        records = [record(f"{dtype} {verb}", variant, 0.2) for dtype in ("fp16", "fp32") for verb in nodes.SHARES
                   for variant in ("ours", "mpi", "mpi-custom-op")]
        measurement = FakeMeasurement(records)
        found, _ = self.run_suite(measurement, "^1gbit 2 x 2 fp16 .*r 32MB")
        self.assertEqual([(row.name, row.peer_name) for row in found],
                         [(f"1gbit 2 x 2 fp16 {verb} 32MB", peer) for verb, mpi in
                          (("reduce_scatter", "mpi-custom-op"), ("all_gather", "mpi")) for peer in (mpi, rows.LIMIT)])
        self.assertAlmostEqual(found[1].peer, 4 * (32 << 20) / 1e9 * 1e3)
        self.assertEqual({job.ranks for job in measurement.jobs.values()}, {4})

    def test_weights_that_a_host_shares_are_predicted_where_it_has_several_ranks(self):
        steps = [record("gpt", variant, 1.0, 2.0, 9.0) for variant in ("ours-fp16", "sharded-fp16", "shared-fp16")]
        measurement = FakeMeasurement([*self.REDUCTIONS, *steps])
        found, asked = self.run_suite(measurement, "^1gbit 2 x 2 gpt .*prediction")
        self.assertEqual([row.name for row in found],
                         [f"1gbit 2 x 2 gpt {name}" for name in ("prediction", "sharded prediction", "shared prediction")])
        self.assertEqual({options for *_, options in asked},
                         {(), ("--shard-optimizer",), ("--shard-optimizer", "--share-weights")})

    def test_nothing_runs_where_no_row_is_wanted(self):
        measurement = FakeMeasurement()
        self.assertEqual(self.run_suite(measurement, "adamw")[0], [])
        self.assertEqual(measurement.jobs, {})

    def test_the_ranks_of_a_host_share_its_core(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            (build / "CMakeCache.txt").write_text("MPIEXEC_EXECUTABLE:FILEPATH=true\n", encoding="utf-8")
            job = launch.Job("hosts", ("program", 1), ranks=4, link="1gbit")
            (command, extra), = launch._processes(job, build, build)
        own = launch.cores()
        self.assertEqual(command, [str(launch.BENCHMARKS / "hosts.sh"), "1gbit", "2", str(own[0]), str(own[1]), "true",
                                   "program", "1"])
        self.assertEqual(extra["OMPI_MCA_mpi_yield_when_idle"], "1")


class OptionalPeers(unittest.TestCase):
    RECORDS = [record(f"{dtype} {size}", variant, 0.5) for dtype in allreduce.TYPES
               for size in allreduce.SIZES
               for variant in ("ours", "ours-copied", "bound", "mpi", "mpi-custom-op", "gloo")]

    def build(self, compiler="true"):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        build = pathlib.Path(folder.name)
        (build / "intel" / "include").mkdir(parents=True)
        (build / "CMakeCache.txt").write_text(f"CMAKE_CXX_COMPILER:FILEPATH={compiler}\n", encoding="utf-8")
        return build

    def rows(self, build, more=()):
        return {row.peer_name: row for row in
                allreduce.run(FakeMeasurement([*self.RECORDS, *more], build), re.compile("^fp16 1MB$"))}

    def test_a_peer_that_is_not_installed_has_rows_that_name_its_package(self):
        found = self.rows(self.build())
        for name, package in (("intel-mpi", "impi-devel"), ("intel-mpi-custom-op", "impi-devel"), ("oneccl", "oneccl-devel")):
            self.assertIsNone(found[name].ratio)
            self.assertTrue(found[name].optional)
            self.assertEqual(found[name].remark, f"not installed: {package}")

    def test_an_installed_peer_is_compiled_and_started_by_its_own_mpiexec(self):
        build = self.build()
        (build / "intel" / "include" / "mpi.h").touch()
        jobs = intel.jobs(build)
        self.assertEqual(list(jobs), ["intel-mpi"])
        self.assertTrue(jobs["intel-mpi"].optional)
        self.assertEqual(jobs["intel-mpi"].mpiexec[-1], build / "intel" / "bin" / "mpiexec.hydra")
        self.assertIn("I_MPI_FABRICS=shm", jobs["intel-mpi"].mpiexec)
        row = self.rows(build, [record("fp16 1MB", "intel-mpi", 1.0)])["intel-mpi"]
        self.assertAlmostEqual(row.ratio, 2.0)

    def test_two_ranks_make_more_runs_than_rounds(self):
        measurement = FakeMeasurement(self.RECORDS, self.build())
        allreduce.run(measurement, re.compile("^fp16 4KB$"))
        self.assertEqual(measurement.rounds, 2 * allreduce.PAIR_RUNS)

    def test_an_installed_peer_that_does_not_compile_is_not_called_optional(self):
        build = self.build(compiler="false")
        (build / "intel" / "include" / "mpi.h").touch()
        self.assertEqual(intel.jobs(build), {})
        row = self.rows(build)["intel-mpi"]
        self.assertEqual((row.remark, row.optional), ("does not run here", False))


if __name__ == "__main__":
    unittest.main()
