"""scripts/test builds and runs what it is asked to: test_script.py ROOT. Stand-ins take the place of cmake, ctest and the rest."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))

from sources import read_libraries  # noqa: E402

SHOWN = '{"tests": [{"name": "a.b", "command": ["HERE/build/launcher/lockstep", "HERE/build/file"], ' \
        '"properties": [{"name": "LABELS", "value": ["unit", "long"]}]}]}'
JUNIT = '<testsuite><testcase name="a.b" time="2.5" status="run"/></testsuite>'
CALLED = 'echo "$(basename "$0") $*" >> HERE/calls\n'
PROGRAMS = {
    "scripts/setup": CALLED,
    "scripts/tidy": CALLED + "exit ${TIDY_CODE:-0}\n",
    "bin/cmake": CALLED,
    "bin/clang-tidy": "",
    "bin/ninja": 'echo "launcher/lockstep: CXX_EXECUTABLE_LINKER__lockstep_cli_Release"\necho "tests/a/all: phony"\n',
    "bin/ctest": f"case \"$*\" in *--show-only*) echo '{SHOWN}'; exit ;; esac\n" + CALLED +
                 f"while [ \"$1\" != --output-junit ]; do shift; done\necho '{JUNIT}' > \"$2\"\nexit ${{CTEST_CODE:-0}}\n",
    ".venv/bin/python": f'exec {sys.executable} "$@"\n',
}
FILES = {
    "base/CMakeLists.txt": "lockstep_add_library(base_library\n  PUBLIC_HEADERS a.h)\n",
    "runtime/step/CMakeLists.txt": "lockstep_add_library(step\n  PUBLIC_HEADERS b.h)\n",
    "inputs/readers/CMakeLists.txt": "lockstep_add_library(readers\n  PUBLIC_HEADERS c.h)\n",
    "tests/base/CMakeLists.txt": "", "tests/runtime/CMakeLists.txt": "", "tests/runtime/step/CMakeLists.txt": "",
    "tests/readers/CMakeLists.txt": "", "tests/build/CMakeLists.txt": "", "tests/consumer/CMakeLists.txt": "",
}
wrong = []


def expect(what, arguments, code, called, *said, **environment):
    calls = pathlib.Path("calls")
    calls.unlink(missing_ok=True)
    ended = subprocess.run(["bash", "scripts/test", *arguments], check=False, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, env=os.environ | {"PATH": f"{os.getcwd()}/bin:{os.environ['PATH']}",
                                                                       "LOCKSTEP_VENV": ""} | environment)
    made = calls.read_text(encoding="utf-8") if calls.exists() else ""
    missing = [each for each in called if not re.search(each, made, re.M)] + [each for each in said if not re.search(each, ended.stdout)]
    if ended.returncode != code or missing or (not called and made):
        wrong.append(f"{what}: {ended.returncode}, missing {missing}\n{made}{ended.stdout}")


for library in read_libraries():
    for name in (library.target, library.name):
        found = subprocess.run([sys.executable, "-B", str(ROOT / "scripts/test_folders.py"), name], check=False, text=True,
                               stdout=subprocess.PIPE)
        if found.returncode != 0 or not (ROOT / "tests" / found.stdout.strip() / "CMakeLists.txt").is_file():
            wrong.append(f"no folder of tests for {name}: {found.stdout}")

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    here = os.getcwd()
    for name, text in {**FILES, **{name: f"#!/bin/sh\n{text}" for name, text in PROGRAMS.items()}}.items():
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("HERE", here), encoding="utf-8")
        path.chmod(0o755)
    for name in ("test", "environment.sh", "test_folders.py", "sources.py", "test_summary.py"):
        pathlib.Path("scripts", name).write_bytes((ROOT / "scripts" / name).read_bytes())
    for build in ("build", "build-debug"):
        pathlib.Path(build).mkdir()

    built, all_of_it = r"^cmake --build HERE/build -- ".replace("HERE", here), r"all$"
    expect("everything but what is long", [], 0,
           [r"^setup --tests$", built + all_of_it, r"^ctest --preset release -LE \^long\$ ", r"^tidy --base$"],
           "unit         1 tests", "long         1 tests", "1 passed, 0 failed",
           r"setup \d+ s, configure \d+ s, build \d+ s, tests \d+ s, tidy \d+ s, \d+ s in all")
    expect("chosen tests, long ones too", ["-R", "a"], 0, [r"^ctest --preset release --parallel \d+ .* -R a$"])
    expect("long tests", ["--long"], 0, [built + all_of_it, r"^ctest --preset release -L \^long\$ "], "lockstep: long tests, 20")
    expect("another preset", ["--preset", "debug"], 0, [rf"^cmake --build {here}/build-debug", r"^ctest --preset debug "])
    expect("one library", ["--only", "base_library"], 0,
           [built + r"tests/base/all$", built + r"launcher/lockstep$", rf"^ctest --test-dir {here}/build/tests/base "])
    expect("one library of several", ["--only", "step", "-R", "a"], 0,
           [built + r"tests/runtime/step/all$", rf"^ctest --test-dir {here}/build/tests/runtime/step .* -R a$"])
    expect("all libraries of a folder", ["--only", "runtime"], 0, [built + r"tests/runtime/all$"])
    expect("a library by its folder", ["--only", "inputs/readers"], 0, [built + r"tests/readers/all$"])
    expect("what looks at the whole tree", ["--only", "consumer"], 0, [built + all_of_it])
    expect("no such library", ["--only", "stop"], 2, [], "--only stop: no library or folder of tests; there are base, base_library, ")
    expect("no name", ["--only"], 2, [], "--only needs a name")
    expect("no such preset", ["--preset", "fast"], 2, [], "no preset named 'fast'")
    expect("a failed test", ["-R", "a"], 8, [r"^ctest"], "s in all", CTEST_CODE="8")
    expect("findings of clang-tidy", ["--base", "abc"], 1, [r"^tidy --base abc$"], r"tidy \d+ s", TIDY_CODE="1")
sys.exit("\n".join(wrong) or None)
