"""What scripts/demo builds is all that `cmake --install` needs: installed.py REPOSITORY BUILD-FOLDER NINJA

A newcomer installs after the demo, from a folder in which tests, examples and benchmarks were never built."""

import pathlib
import re
import subprocess
import sys

ROOT, BUILD, NINJA = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]


def ninja(*arguments):
    done = subprocess.run([NINJA, "-C", BUILD, "-t", *arguments], capture_output=True, text=True, check=True)
    return {pathlib.Path(BUILD, line).resolve() for line in done.stdout.splitlines() if not line.startswith("ninja: ")}


def installed_from_build():
    for script in BUILD.rglob("cmake_install.cmake"):
        if BUILD / "tests" in script.parents:
            continue
        for call in re.findall(r"^ *file\(INSTALL ([^\n]*(?:\n[^()\n]*)*)\)", script.read_text(encoding="utf-8"), re.M):
            files = call[call.index(" FILES "):] if " FILES " in call else ""
            yield from (path for path in (pathlib.Path(name) for name in re.findall(r'"([^"]+)"', files))
                        if BUILD in path.parents)


demo = re.search(r"^build release ([^#\n]*)", (ROOT / "scripts" / "demo").read_text(encoding="utf-8"), re.M)[1].split()
built = ninja("inputs", *demo)
for target in demo:  # whose own files are no inputs
    query = subprocess.run([NINJA, "-C", BUILD, "-t", "query", target], capture_output=True, text=True, check=True).stdout
    built |= {pathlib.Path(BUILD, name) for name in re.findall(r"^    (\S+)$", query.split("  outputs:")[0], re.M)}
outputs = {pathlib.Path(BUILD, line.split(": ")[0]) for line in subprocess.run(
    [NINJA, "-C", BUILD, "-t", "targets", "all"], capture_output=True, text=True, check=True).stdout.splitlines()}
installed = set(installed_from_build())
assert any(path.name == "liblockstep_loop.a" or ".so" in path.name for path in installed), installed
# A module of Fortran comes with the object of its library.
modules = {path for path in installed if path.suffix == ".mod"}
missing = {path for path in installed - built - modules if path in outputs or not path.exists()}
if modules and not any("fortran" in path.name and path.suffix in (".a", ".so") for path in built):
    missing |= modules
for path in sorted(missing):
    print(f"`cmake --install` needs {path.relative_to(BUILD)}, which `scripts/demo` ({' '.join(demo)}) does not build")
print(f"{len(installed)} files of the build are installed")
sys.exit(bool(missing))
