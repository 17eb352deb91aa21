"""scripts/pack_gpu on a made-up build, and the pack in another place: gpu_pack.py REPOSITORY COMPILER
gpu_pack.py REPOSITORY BUILD rehearsed: the real programs, where the build tree, the distribution's Open MPI and compilers are hidden

The made-up build has tests with one program each, as lockstep_add_gpu_test() makes them: of one rank, of two ranks with a
filter over both transports, and of one rank with arguments; and one that runs on one rank of the host. The pack is run where
the build is no longer there, with a made-up folder of torch.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(ROOT / "scripts/gpu"))
import place  # noqa: E402

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>
int main(int argc, char** argv) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::printf("%s rank %s of %s over %s, LibTorch_ROOT %d:", NAME, rank ? rank : "-", std::getenv("LOCKSTEP_TEST_RANKS"),
              std::getenv("LOCKSTEP_TRANSPORT"), std::getenv("LibTorch_ROOT") != nullptr);
  for (int i = 1; i < argc; ++i) std::printf(" <%s>", argv[i]);
  std::printf("\n");
  std::fflush(stdout);
  const char* text = std::getenv(NAME);
  const std::string what = text ? text : "77";
  if (what == "hang") {
    if (fork() == 0) setpgid(0, 0);  // as mpirun's ranks
    for (;;) sleep(1);
  }
  if (what == "fill") {
    const std::string line(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) std::fwrite(line.data(), 1, line.size(), stdout);
    return 0;
  }
  if (what == "77") std::printf("no GPU test was run: there is no GPU, or no driver for it\n");
  if (what == "0") std::printf("[  PASSED  ] 3 tests.\n");
  return std::atoi(what.c_str());
}
"""
MPIRUN = "/usr/bin/mpiexec --oversubscribe --bind-to none -n {}"
FILTER = "--gtest_filter=-*Never*:Sums.Sparse*"
TESTS = [("amp.one.gpu", "", "tests/amp/one", "", "", "staged"),
         ("runtime.ranks.gpu", MPIRUN.format(2), "tests/runtime/ranks", FILTER, "2", "staged"),
         ("runtime.ranks.nccl", MPIRUN.format(2), "tests/runtime/ranks", FILTER, "2", "nccl"),
         ("trainer.alone.gpu", "", "tests/trainer/alone", "--gtest_filter=A.B -n 5", "", "staged")]
ON_THE_HOST = [("amp.unit", "", "tests/amp/unit", ""),
               ("runtime.ranks.np1", MPIRUN.format(1), "tests/runtime/ranks", "--gtest_filter=-TwoRanks.*")]
OTHERS = ["benchmarks/gpu_step", "benchmarks/gpu_update", "benchmarks/gpu_layers", "benchmarks/allreduce", "benchmarks/step", "benchmarks/cores",
          "launcher/lockstep", "launcher/lockstep-doctor"]
wrong = []


def expect(condition, text):
    if not condition:
        wrong.append(text)


def make_build(build, compiler):
    for program in dict.fromkeys([test[2] for test in TESTS] + OTHERS):
        path = build / program
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-x", "c++", f'-DNAME="{path.name}"', "-o", path, "-"], input=PROGRAM, check=True, text=True)
    lines = []
    for name, start, program, arguments, *of_gpu in [*TESTS, *ON_THE_HOST]:
        command = " ".join(f'"{word}"' for word in [*start.split(), f"{build}/{program}", *arguments.split()])
        lines.append(f"add_test({name} {command})")
        if of_gpu:
            lines.append(f'set_tests_properties({name} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 ENVIRONMENT '
                         f'"OMP_NUM_THREADS=1;LOCKSTEP_TEST_RANKS={of_gpu[0]};LOCKSTEP_TRANSPORT={of_gpu[1]}")')
    (build / "CTestTestfile.cmake").write_text("\n".join(lines), encoding="ascii")


def packed(build, file):
    return subprocess.run([ROOT / "scripts/pack_gpu", "--build", build, file], capture_output=True, text=True, check=False)


class Run:
    """One run of the pack, started; its report is in a folder of its own."""

    def __init__(self, pack, torch, *arguments, report, before=(), python=sys.executable, **environment):
        self.folder = report
        given = ["--torch", torch] if torch else []
        self.process = subprocess.Popen(
            [*before, python, pack / "run", *given, "--report", report, *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment})

    def end(self):
        self.text = self.process.communicate()[0]
        self.code = self.process.returncode
        return self

    def steps(self):
        report = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        return {step["name"]: step for part in report["parts"] for step in part["steps"]}

    def states(self):
        return {name: step["state"] for name, step in self.steps().items()}

    def log(self, name):
        return (self.folder / self.steps()[name]["log"]).read_text(encoding="utf-8")

    def wait_for(self, name):
        """Until the step is under way."""
        while self.process.poll() is None:
            try:
                if self.steps()[name]["reason"] == "was under way when this was written" and self.log(name):
                    return
            except (OSError, ValueError):
                pass
            time.sleep(0.05)
        expect(False, f"{name} never began: {self.process.communicate()[0]}")


def processes_of(pack):
    """Programs of the pack that are still there."""
    found = []
    for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
        try:
            found += [link] if str(os.readlink(link)).startswith(str(pack)) else []
        except OSError:
            pass
    return found


def namespaces():
    """Whether a test may mount file systems of its own."""
    return subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0


def check_all(run):
    expect(run.code == 0, f"a run in which all is skipped: code {run.code}, {run.text}")
    over = {"amp.one.gpu": "one rank - of  over staged, LibTorch_ROOT 1:\n",
            "trainer.alone.gpu": "alone rank - of  over staged, LibTorch_ROOT 1: <--gtest_filter=A.B> <-n> <5>\n",
            "trainer.alone.gpu.nccl": "alone rank - of  over nccl, LibTorch_ROOT 1: <--gtest_filter=A.B> <-n> <5>\n",
            "runtime.ranks.nccl.np1": f"ranks rank 0 of 1 over nccl, LibTorch_ROOT 1: <{FILTER}:TwoRanks.*>\n",
            "captured.trainer.alone.gpu.nccl": "alone rank - of  over nccl, LibTorch_ROOT 1: <-n> <5> <--gtest_filter=*Captur*"}
    for name, line in over.items():
        expect(line in run.log(name), f"{name} does not say {line!r}: {run.log(name)}")
    for way, name in (("staged", "runtime.ranks.gpu"), ("nccl", "runtime.ranks.nccl")):
        for rank in (0, 1):
            line = f"ranks rank {rank} of 2 over {way}, LibTorch_ROOT 1: <{FILTER}>\n"
            expect(line in run.log(name), f"{name} does not say {line!r}: {run.log(name)}")
    steps = run.steps()
    expect({steps[name]["state"] for name in over} == {"skipped"}, f"what ends with code 77 is not skipped: {steps}")
    expect("there is no GPU" in steps["runtime.ranks.gpu"]["reason"], f"no reason: {steps['runtime.ranks.gpu']}")
    expect("amp.unit" not in steps and steps["doctor"]["state"] == "ok", f"steps: {steps}")
    expect("memcheck.amp.one.gpu" in steps and "bench.host.allreduce.np16" not in steps, f"steps: {list(steps)}")
    text = (run.folder / "report.md").read_text(encoding="utf-8")
    for what in ("| GPU |", "| CPU |", "| memory |", "| torch |", "| date |", "| tests | skipped | 4 skipped |", "| doctor | ok |"):
        expect(what in text, f"report.md has no {what!r}: {text}")
    expect("| tests | skipped | 4 skipped |" in run.text, f"the summary is not printed: {run.text}")


def made_up(folder, compiler):
    build, there, torch = folder / "build", folder / "there", folder / "site/torch"
    make_build(build, compiler)
    done = packed(build, folder / "pack.tar.gz")
    if done.returncode != 0:
        sys.exit(f"pack_gpu: code {done.returncode}: {done.stdout}{done.stderr}")
    build.rename(folder / "gone")
    there.mkdir()
    subprocess.run(["tar", "-xzf", folder / "pack.tar.gz", "-C", there], check=True)
    pack = there / "gpu"
    version = json.loads((pack / "pack.json").read_text(encoding="ascii"))["torch"]
    torch.mkdir(parents=True)
    (torch / "version.py").write_text(f"__version__ = '{version}'\n", encoding="ascii")

    def start(name, *arguments, **more):
        return Run(pack, more.pop("torch", torch.parent), *arguments, report=folder / name, **more)

    check_all(start("all", "--only", "^(?!bench)", lockstep="0").end())

    run = start("failing", "--only", "tests/", one="3", ranks="0", alone="0").end()
    steps = run.steps()
    expect(run.code == 1 and run.states()["amp.one.gpu"] == "failed" and "code 3" in steps["amp.one.gpu"]["reason"],
           f"a test that fails: code {run.code}, {run.text}")
    expect(steps["runtime.ranks.gpu"]["state"] == "ok" and steps["runtime.ranks.gpu"]["reason"] == "3 tests passed",
           f"after one that fails: {steps}")

    run = start("late", "--only", "doctor|tests/amp|tests/runtime.ranks.gpu", "--minutes", "0.1", lockstep="hang", one="0").end()
    expect(run.code == 1 and run.states()["doctor"] == "cut" and run.states()["amp.one.gpu"] == "ok",
           f"a part that is late costs others: {run.text}")

    for name, number, reason in (("ended", signal.SIGTERM, "ended by SIGTERM"), ("killed", signal.SIGKILL, "was under way")):
        run = start(name, "--only", "tests/", one="0", ranks="hang")
        run.wait_for("runtime.ranks.gpu")
        run.process.send_signal(number)
        run.end()
        steps = run.steps()
        expect(run.code == (143 if number == signal.SIGTERM else -9), f"{name}: code {run.code}")
        expect(steps["amp.one.gpu"]["state"] == "ok" and steps["runtime.ranks.gpu"]["state"] == "cut"
               and reason in steps["runtime.ranks.gpu"]["reason"] and steps["trainer.alone.gpu"]["state"] == "cut",
               f"{name}: {run.text} {steps}")
        expect("| tests | cut |" in (run.folder / "report.md").read_text(encoding="utf-8"), f"{name}: report.md")
        if number == signal.SIGTERM:
            expect(not processes_of(pack), f"ended, but these go on: {processes_of(pack)}")
        for link in processes_of(pack):  # of a run that was killed
            os.kill(int(link.parent.name), signal.SIGKILL)

    if namespaces():
        small = folder / "small"
        small.mkdir()
        script = (f"mount -t tmpfs -o size=4m none {small} && {{ \"$@\"; code=$?; cp {small}/r/report.json {folder}/full.json; "
                  f"exit $code; }}")
        run = Run(pack, torch.parent, "--only", "tests/", report=small / "r", before=("unshare", "-rm", "bash", "-c", script, "sh"),
                  one="0", ranks="fill", alone="0").end()
        full = json.loads((folder / "full.json").read_text(encoding="utf-8"))
        states = {step["name"]: step["state"] for part in full["parts"] for step in part["steps"]}
        expect(states["amp.one.gpu"] == states["trainer.alone.gpu"] == "ok", f"a full disk: {states}, {run.text}")
    else:
        print("skipped: a full disk (no namespaces here)")

    (torch / "version.py").write_text("__version__ = '1.0'\n", encoding="ascii")
    run = start("other", "--only", "tests/").end()
    expect(run.code == 3 and f"torch 1.0, the pack was made with {version}" in run.text and run.states()["amp.one.gpu"] == "skipped",
           f"another torch: code {run.code}: {run.text}")
    with zipfile.ZipFile(folder / "torch-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torch/version.py", f"__version__ = '{version}'\n")
    run = start("wheel", "--only", "doctor", torch=folder / "torch-1-py3-none-any.whl", lockstep="0").end()
    expect(run.code == 0 and run.states()["doctor"] == "ok", f"a wheel: code {run.code}: {run.text}")
    shutil.rmtree(pack / "site")
    run = start("pip", "--only", "doctor", torch=None, python=sys._base_executable, PIP_NO_INDEX="1").end()
    expect(run.code == 3 and "Without network: run --torch" in run.text, f"no torch, no network: code {run.code}: {run.text}")
    run = start("none", "--only", "tests/", torch=folder / "there").end()
    expect(run.code == 3 and "nor a folder of wheels" in run.text, f"no torch: code {run.code}: {run.text}")
    run = start("nothing", "--only", "no such step").end()
    expect(run.code == 2, f"a name that no step has: code {run.code}")

    (folder / "gone").rename(build)
    (build / "tests/trainer/alone").unlink()
    done = packed(build, folder / "less.tar.gz")
    expect(done.returncode != 0 and "trainer.alone.gpu has no program" in done.stderr,
           f"a program that is not built: code {done.returncode}: {done.stderr}")


HIDDEN = r"""
hide() { if [ -d "$1" ]; then mount -t tmpfs none "$1"; elif [ -f "$1" ]; then mount --bind "$EMPTY" "$(realpath "$1")"; fi; }
for one in "$HIDE" /usr/share/openmpi /usr/lib/*/openmpi /usr/lib/*/pmix* /usr/local/cuda* /etc/ld.so.cache \
    /usr/lib/*/lib{mpi,open-rte,open-pal,hwloc,pmix,event}[._-]*so* /usr/bin/{orterun,orted,mpirun,gcc,g++,cc,c++}; do
  hide "$one" || exit 99
done
exec "$@"
"""


def rehearsed(folder, build):
    """A small selection of the real programs, to the end, on CPUs."""
    done = packed(build, folder / "pack.tar.gz")
    if done.returncode != 0:
        sys.exit(f"pack_gpu: code {done.returncode}: {done.stdout}{done.stderr}")
    print(done.stdout.strip())
    (folder / "there").mkdir()
    subprocess.run(["tar", "-xzf", folder / "pack.tar.gz", "-C", folder / "there"], check=True)
    before = ()
    if namespaces():
        (folder / "empty").touch()
        before = ("unshare", "-rm", "bash", "-c", HIDDEN, "sh")
    else:
        print("skipped: hiding the build tree (no namespaces here)")
    only = r"doctor/|tests/amp.kernels|tests/doctor.ranks.gpu|doctor.ranks.nccl.np1|models|memcheck.amp.kernels|allreduce.np(8|16)"
    run = Run(folder / "there/gpu", place.own_torch().parent, "--only", only, report=folder / "report", before=before,
              HIDE=str(build), EMPTY=str(folder / "empty")).end()
    print((folder / "report/report.md").read_text(encoding="utf-8"))
    expect(run.code == 0, f"code {run.code}: {run.text}")
    states = run.states()
    expect(states.get("doctor") == "ok", "doctor: " + run.log("doctor"))
    expect(states.get("amp.kernels.gpu") in ("skipped", "ok"), f"amp.kernels.gpu: {states}")
    expect(not [name for name, state in states.items() if state in ("failed", "cut")], f"states: {states}")
    expect(not re.search(r"error while loading|undefined symbol", "".join(log.read_text(errors="replace") for log in
                                                                          (run.folder / "logs").iterdir())), "a library is missing")


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if len(sys.argv) > 3:
            rehearsed(folder, pathlib.Path(sys.argv[2]))
        else:
            made_up(folder, sys.argv[2])
    print("\n".join(wrong) or "the pack runs what ctest would run, and its report survives")
    sys.exit(bool(wrong))


main()
