"""scripts/tidy chooses the sources of what changed, says what it leaves out, and looks at the headers of every library:
tidy.py ROOT. A stand-in takes the place of clang-tidy."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))

from sources import read_libraries  # noqa: E402

CMAKE = "lockstep_add_library({}\n  PUBLIC_HEADERS {}\n  DEPENDS {})\n"
TREE = {
    "lockstep.h": "",
    "base/CMakeLists.txt": CMAKE.format("base", "work.h", ""),
    "base/work.h": "", "base/host/engine.h": "#include <lockstep/base/work.h>\n", "base/host/old.cpp": "",
    "base/host/engine.cpp": "#include <lockstep/base/host/engine.h>\n", "base/host/alone.h": "",
    "step/CMakeLists.txt": CMAKE.format("step", "loss.h", "base"),
    "step/loss.h": "#include <lockstep/base/work.h>\n", "step/loss.cpp": "#include <lockstep/step/loss.h>\n",
    "launcher/main.cpp": "", "tests/loss_test.cpp": "#include <lockstep/step/loss.h>\n",
}
NOT_COMPILED = ("base/host/old.cpp",)
CLANG_TIDY = """#!/bin/sh
echo "looks at $4" >> looked_at
case "$4" in *bad*) echo "$4:1: warning"; exit 1 ;; esac
"""
wrong = []


def expect(what, ended, code, *lines, files=()):
    looked_at = pathlib.Path("looked_at")
    found = looked_at.read_text(encoding="ascii").splitlines() if looked_at.exists() else []
    looked_at.unlink(missing_ok=True)
    text = ended.stdout + ended.stderr
    missing = [line for line in lines if line not in text]
    if ended.returncode != code or missing or sorted(found) != sorted(f"looks at {name}" for name in files):
        wrong.append(f"{what}: {ended.returncode}, not said: {missing}, {found}\n{text}")


def tidy(*arguments, path=os.environ["PATH"]):
    return subprocess.run([sys.executable, "-B", "scripts/tidy", *arguments], check=False, text=True, capture_output=True,
                          env=os.environ | {"PATH": f"{os.getcwd()}/bin:{path}"})


def git(*arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)


def write(name, text):
    path = pathlib.Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def add(name, text):
    with open(name, "a", encoding="utf-8") as file:
        file.write(text)


header_filter = re.search(r"^HeaderFilterRegex: '(.*)'$", (ROOT / ".clang-tidy").read_text(encoding="utf-8"), re.M)[1]
for library in read_libraries():
    for header in (source for source in library.sources if source.is_header):
        for folder in (library.target, f"own/{library.target}"):
            path = f"/home/me/code/build/include/{folder}/lockstep/{header.name}"
            if not re.fullmatch(header_filter, path):
                wrong.append(f"clang-tidy does not look at {path}")
if re.fullmatch(header_filter, "/home/me/lockstep/.venv/lib/torch/include/ATen/Tensor.h"):
    wrong.append("clang-tidy looks at LibTorch's headers")

with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name, text in TREE.items():
        write(name, text)
    for script in ("tidy", "include_graph.py", "sources.py"):
        write(f"scripts/{script}", (ROOT / "scripts" / script).read_text(encoding="utf-8"))
    write("bin/clang-tidy", CLANG_TIDY)
    os.chmod("bin/clang-tidy", 0o755)
    write(".gitignore", "build\nbin\nlooked_at\n")
    expect("no build tree", tidy(), 3, "build/ is not configured")
    here = os.getcwd()
    names = [name for name in [*TREE, "base/bad.cpp", "step/new.cpp"] if name.endswith(".cpp") and name not in NOT_COMPILED]
    unity = names.pop(names.index("step/loss.cpp"))
    write("build/step/Unity/unity_0_cxx.cxx", f'#include "{here}/{unity}"\n')
    write("build/compile_commands.json", json.dumps(
        [{"directory": here, "file": f"{here}/{name}",
          "command": f"c++ -fpch-preprocess -include {here}/cmake_pch.hxx -O1 -o a.o -c {here}/{name}"}
         for name in [*names, "build/step/Unity/unity_0_cxx.cxx"]]))
    everything = ["base/host/engine.cpp", "launcher/main.cpp", "step/loss.cpp"]
    expect("all", tidy(), 0, "3 sources, 0 with findings", files=everything)
    commands = json.loads(pathlib.Path("build/tidy/compile_commands.json").read_text(encoding="utf-8"))
    if f"c++ -O1 -o a.o -c {here}/step/loss.cpp" not in (entry["command"] for entry in commands):
        wrong.append(f"a source of a unity build and its precompiled header: {commands}")
    expect("no repository", tidy("--base"), 0, "skipped", "--base COMMIT")
    git("init", "-q", "-b", "trunk")
    git("add", ".")
    git("commit", "-q", "-m", "a")
    expect("no main", tidy("--base"), 0, "skipped: this branch has no commit in common with main or origin/main")
    expect("an unknown commit", tidy("--base", "v9"), 1, "--base v9: there is no such commit")
    git("branch", "main")
    expect("nothing changed", tidy("--base"), 0, "0 sources that changed since ")
    add("step/loss.cpp", "\n")
    git("commit", "-q", "-a", "-m", "b")
    add("base/host/engine.h", "\n")
    add("tests/loss_test.cpp", "\n")
    add("base/host/old.cpp", "\n")
    add("base/host/alone.h", "\n")
    write("step/new.cpp", "")
    expect("what changed on the branch, in the tree and without git", tidy("--base"), 0,
           "base/host/old.cpp is left out", "base/host/alone.h is left out", "3 sources",
           files=["base/host/engine.cpp", "step/loss.cpp", "step/new.cpp"])
    script = pathlib.Path("scripts/tidy").read_text(encoding="utf-8")
    write("scripts/tidy", script.replace("MOST_IN_GATE = 60", "MOST_IN_GATE = 2"))
    expect("a change that is too large for the gate", tidy("--base"), 0, "skipped: 3 sources changed since ", "more than 2; run ")
    write("scripts/tidy", script)
    expect("since a commit", tidy("--base", "HEAD"), 0, "2 sources", files=["base/host/engine.cpp", "step/new.cpp"])
    expect("a header of two libraries", tidy("base/work.h"), 0, "1 sources", files=["base/host/engine.cpp"])
    expect("a file of another kind", tidy("README.md"), 1, "no source of a library or of launcher/: README.md")
    write("base/bad.cpp", "")
    expect("a finding", tidy("--base", "HEAD"), 1, "base/bad.cpp:1: warning", "1 with findings",
           files=["base/bad.cpp", "base/host/engine.cpp", "step/new.cpp"])
    os.remove("bin/clang-tidy")
    os.makedirs("empty")
    os.symlink(shutil.which("git"), "empty/git")
    expect("no clang-tidy", tidy("--base", path=f"{here}/empty"), 3, "clang-tidy is missing")
sys.exit("\n".join(wrong) or None)
