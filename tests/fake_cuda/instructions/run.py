#!/usr/bin/env python3
"""Tests each instruction that the fake CUDA's machine knows, against exact arithmetic in Python.

  run.py --machine PROGRAM [--arch sm_75] [--cache FOLDER] [GROUP...] [--only NAME]

PROGRAM: machine/run_kernel. A group is a file of this folder with CASES; without any: all. Exit code 1: a kernel gives
other numbers than the instruction defines, or has not the instruction that it should test, or the machine runs what it
should refuse. 77: a tool is missing. --coverage lists what of the machine's table no kernel has.
"""

import argparse
import concurrent.futures
import importlib
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import coverage  # noqa: E402
import kernels  # noqa: E402
from kernels import machine_code  # noqa: E402

GROUPS = ("integers", "floats", "memories", "controls", "uniforms", "variants", "refusals")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--machine", required=True)
    options.add_argument("--arch", default="sm_75")
    options.add_argument("--cache", default=None)
    options.add_argument("--only", default="")
    options.add_argument("--coverage", action="store_true", help="what of the machine's table no kernel has")
    options.add_argument("groups", nargs="*", default=GROUPS)
    given = options.parse_args()
    cache = given.cache or machine_code.cache_folder()
    wrong, count, begin, instructions = 0, 0, time.time(), []
    for group in given.groups:
        cases = [case for case in importlib.import_module(group).CASES
                 if given.only in case.name and int(given.arch[3:]) >= case.arch]
        code = kernels.Code(cases, given.arch, cache)
        machine = kernels.Machine(given.machine, code, cache, given.arch)
        count += len(cases)
        for case in cases:
            instructions += kernels.tested(case, code.instructions[case.name])
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for case, lines in zip(cases, pool.map(lambda case: kernels.failures(case, code, machine), cases)):
                wrong += len(lines)
                for line in lines:
                    print(f"{group} {case.name}: {line}")
    if given.coverage:
        print("no test has: " + " ".join(coverage.untested(instructions)))
    print(f"{count} kernels, {wrong} problems, {time.time() - begin:.1f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except machine_code.Missing as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
