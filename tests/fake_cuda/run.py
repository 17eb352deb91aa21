#!/usr/bin/env python3
"""Runs a program of LibTorch's CUDA build on the fake CUDA: no GPU, no driver.

  tests/fake_cuda/run.py [OPTION]... PROGRAM [ARGUMENT]...

PROGRAM is any program: a test, python3, mpirun or `lockstep run`; the processes that it starts run on the fake CUDA
too. The machine code of PROGRAM, of the programs among its arguments, of the libraries that they load, and of torch is
taken out once (machine_code.py keeps it in a cache). An option sets the environment variable of its name
(README.md); variables that are set already hold where no option is given.

Exit code: that of the program; 77 if a tool for the machine code is missing; 2 if the fake libraries are not built.
"""

import argparse
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import machine_code  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The switches come first: they stand before a function of libcudart.
LIBRARIES = ["libfake_cuda_switches.so", "libcuda.so.1", "libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13",
             "libnccl.so.2"]
# Options that only set a variable: name, what the help says.
SETTINGS = {
    "order": "when work runs: late (when somebody waits for it), random or eager",
    "seed": "which of several pieces of work runs first",
    "idle-us": "after how many microseconds work runs that nobody waits for",
    "devices": "the number of devices",
    "mib": "the memory of each device",
    "cc": "the compute capability: 75 or 80",
    "report": "a file for the numbers of launches, waits, allocations and races, written at exit",
    "fail-malloc": "the allocation, counted from 0, that fails",
    "fail-launch": "the launch that fails",
    "fail-sync": "the wait of the host that fails",
    "fail-collective": "the collective that fails",
    "forget-wait": "the wait of a stream for an event that is forgotten",
}


def library_folder(build):
    """Where the fake libraries are: in the folder, or in a build folder of the repository."""
    start = pathlib.Path(build)
    for folder in [start, start / "tests/fake_cuda", start / "fake_cuda"]:
        if (folder / LIBRARIES[2]).exists():
            return folder.resolve()
    return None


def is_elf(path):
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def programs_of(command):
    """The programs and libraries that a command line names, e.g. of mpirun -n 2 PROGRAM."""
    paths = [word if "/" in word else shutil.which(word) or word for word in command if not word.startswith("-")]
    return [pathlib.Path(path).resolve() for path in paths if is_elf(path)]


def environment(given, libraries):
    """The variables of this process and those of the fake CUDA."""
    variables = dict(os.environ)
    for name in SETTINGS:
        value = getattr(given, name.replace("-", "_"))
        if value is not None:
            variables["FAKE_CUDA_" + name.replace("-", "_").upper()] = value
    if given.races:
        variables["FAKE_CUDA_RACES"] = "1"
    if given.log:
        variables["FAKE_CUDA_LOG"] = "1"
    if given.no_caching:
        variables["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    if given.report is not None:
        variables["FAKE_CUDA_REPORT"] = str(pathlib.Path(given.report).resolve())
    architecture = "sm_" + variables.get("FAKE_CUDA_CC", machine_code.DEFAULT[3:])
    folders = {}
    for program in programs_of([given.program, *given.arguments]) + given.code or [None]:
        found = machine_code.environment(program, architecture)
        folders.update(dict.fromkeys(found["FAKE_CUDA_CODE"].split(":")))
        variables.update(found)
    variables["FAKE_CUDA_CODE"] = ":".join(folders)
    preloaded = [str(libraries / name) for name in LIBRARIES if (libraries / name).exists()]
    preloaded += [library for library in os.environ.get("LD_PRELOAD", "").split(":") if library]
    variables["LD_PRELOAD"] = ":".join(dict.fromkeys(preloaded))
    return variables


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    for name, text in SETTINGS.items():
        parser.add_argument("--" + name, metavar="N" if "fail" in name or "forget" in name else name.upper(), help=text)
    parser.add_argument("--races", action="store_true", help="name accesses that no event orders")
    parser.add_argument("--log", action="store_true", help="print each piece of work")
    parser.add_argument("--no-caching", action="store_true",
                        help="each tensor has an allocation of its own (PYTORCH_NO_CUDA_MEMORY_CACHING)")
    parser.add_argument("--code", action="append", default=[], type=pathlib.Path, metavar="FILE",
                        help="also the machine code of this library, which the program loads as it runs")
    parser.add_argument("--build", default=os.environ.get("FAKE_CUDA_BUILD", ROOT / "build"), metavar="DIR",
                        help="the build folder, or the one with the fake libraries (default: build)")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def main():
    given = options().parse_args()
    libraries = library_folder(given.build)
    if libraries is None:
        print(f"{given.build} has no {LIBRARIES[2]}: build the target fake_cuda, or name its folder with --build",
              file=sys.stderr)
        return 2
    try:
        variables = environment(given, libraries)
    except machine_code.Missing as missing:
        print(f"skipped: {missing}", file=sys.stderr)
        return 77
    try:
        os.execvpe(given.program, [given.program, *given.arguments], variables)
    except OSError as error:
        print(f"{given.program}: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
