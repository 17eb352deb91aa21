"""scripts/pack_gpu on a made-up build, and the pack in another place: gpu_pack.py REPOSITORY COMPILER

The build has three tests with one program each, as lockstep_add_gpu_test() makes them: of one rank, of two ranks with a
filter over both transports, and of one rank with arguments. The pack is run where the build is no longer there.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT, COMPILER = pathlib.Path(sys.argv[1]), sys.argv[2]
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
int main(int argc, char** argv) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  std::printf("%s rank %s of %s over %s, LibTorch_ROOT %d:", NAME, rank ? rank : "-", std::getenv("LOCKSTEP_TEST_RANKS"),
              std::getenv("LOCKSTEP_TRANSPORT"), std::getenv("LibTorch_ROOT") != nullptr);
  for (int i = 1; i < argc; ++i) std::printf(" <%s>", argv[i]);
  std::printf("\n");
  const char* code = std::getenv(NAME);
  return code ? std::atoi(code) : 77;
}
"""
MPIRUN = "/usr/bin/mpiexec --oversubscribe --bind-to none -n 2"
TESTS = [("amp.one.gpu", "", "tests/amp/one", "", "", "staged"),
         ("runtime.ranks.gpu", MPIRUN, "tests/runtime/ranks", "--gtest_filter=-*Never*:Sums.Sparse*", "2", "staged"),
         ("runtime.ranks.nccl", MPIRUN, "tests/runtime/ranks", "--gtest_filter=-*Never*:Sums.Sparse*", "2", "nccl"),
         ("amp.few.gpu", "", "tests/amp/few", "--gtest_filter=A.B -n 5", "", "staged")]
OTHERS = ["benchmarks/gpu_step", "benchmarks/gpu_update", "launcher/lockstep", "launcher/lockstep-doctor"]
wrong = []


def expect(condition, text):
    if not condition:
        wrong.append(text)


def make_build(build):
    for program in dict.fromkeys([test[2] for test in TESTS] + OTHERS):
        path = build / program
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([COMPILER, "-x", "c++", f'-DNAME="{path.name}"', "-o", path, "-"], input=PROGRAM, check=True,
                       text=True)
    lines = []
    for name, start, program, arguments, ranks, transport in TESTS:
        command = " ".join(f'"{word}"' for word in [*start.split(), f"{build}/{program}", *arguments.split()])
        lines += [f"add_test({name} {command})",
                  f'set_tests_properties({name} PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 ENVIRONMENT '
                  f'"OMP_NUM_THREADS=1;LOCKSTEP_TEST_RANKS={ranks};LOCKSTEP_TRANSPORT={transport}")']
    lines.append(f'add_test(amp.unit "{build}/tests/amp/unit")')
    (build / "CTestTestfile.cmake").write_text("\n".join(lines), encoding="ascii")


def run(pack, *arguments, **environment):
    done = subprocess.run([pack / "run", *arguments], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHON": sys.executable, **environment})
    return done.returncode, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_build(folder / "build")
        packed = subprocess.run([ROOT / "scripts/pack_gpu", "--build", folder / "build", folder / "pack.tar.gz"],
                                capture_output=True, text=True, check=False)
        if packed.returncode != 0:
            sys.exit(f"pack_gpu: code {packed.returncode}: {packed.stdout}{packed.stderr}")
        (folder / "build").rename(folder / "gone")
        (folder / "there").mkdir()
        subprocess.run(["tar", "-xzf", folder / "pack.tar.gz", "-C", folder / "there"], check=True)
        pack = folder / "there/gpu"

        code, text = run(pack, "tests")
        expect(code == 0, f"tests that are skipped fail: code {code}")
        for line in ["one rank - of  over staged, LibTorch_ROOT 1:\n",
                     *(f"ranks rank {rank} of 2 over {way}, LibTorch_ROOT 1: <--gtest_filter=-*Never*:Sums.Sparse*>\n"
                       for rank in (0, 1) for way in ("staged", "nccl")),
                     "few rank - of  over staged, LibTorch_ROOT 1: <--gtest_filter=A.B> <-n> <5>\n",
                     *(f"{test[0]}: skipped\n" for test in TESTS)]:
            expect(line in text, f"run tests does not say {line!r}: {text}")
        code, text = run(pack, "tests", "ranks", one="1", ranks="0")
        expect(code == 0 and "runtime.ranks.nccl: passed" in text and "amp." not in text, f"run tests ranks: {text}")
        code, text = run(pack, "tests", few="1")
        expect(code == 1 and "amp.few.gpu: FAILED, code 1" in text, f"a test that fails: code {code}, {text}")
        code, text = run(pack, "tests", "no such name")
        expect(code == 1, "a name that no test has passes")
        code, text = run(pack, "doctor", "-n", "1", LOCKSTEP_TEST_RANKS="", LOCKSTEP_TRANSPORT="", lockstep="3")
        expect(code == 3 and "LibTorch_ROOT 1: <doctor> <-n> <1>\n" in text, f"run doctor: code {code}, {text}")

        (folder / "gone").rename(folder / "build")
        (folder / "build/tests/amp/few").unlink()
        packed = subprocess.run([ROOT / "scripts/pack_gpu", "--build", folder / "build", folder / "less.tar.gz"],
                                capture_output=True, text=True, check=False)
        expect(packed.returncode != 0 and "amp.few.gpu has no program" in packed.stderr,
               f"a program that is not built: code {packed.returncode}: {packed.stderr}")
    print("\n".join(wrong) or "the pack runs what ctest would run")
    sys.exit(bool(wrong))


main()
