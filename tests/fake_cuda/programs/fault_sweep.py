#!/usr/bin/env python3
"""Plants a fault at many places of a training on the fake CUDA, and looks at how the ranks end.

  fault_sweep.py RUN PROGRAM LOCKSTEP [--places N]

RUN: run.py. PROGRAM: device_fault. LOCKSTEP: the lockstep command. A rank whose device fails ends with code 20 and
CUDA's words, never by a signal; of two ranks the one that failed is named; all end within a minute, long before the
deadline of a collective. Captured steps fit where the activations of one step fit once. Exit code 1: one did not; what
it printed follows. 77: run.py lacks a tool.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

WORDS = "illegal memory access"
SECONDS = 60
FITS_MIB = 64  # less than twice what captured steps of the wide model need


def finished(command, **settings):
    """Exit code (of a signal: 128 and its number) and output; the settings are variables FAKE_CUDA_..."""
    variables = {"FAKE_CUDA_" + name.upper(): str(value) for name, value in settings.items()}
    try:
        ended = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as late:
        return "late", str(late.stdout) + str(late.stderr)
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return code, ended.stdout + ended.stderr


def launches(command):
    """How many kernels the training launches, its exit code and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report"
        code, text = finished(command, report=report)
        kernels = json.loads(report.read_text())["kernels"].values() if report.exists() else []
        return sum(kernels), code, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("program")
    parser.add_argument("lockstep")
    parser.add_argument("--places", type=int, default=12)
    given = parser.parse_args()
    wrong = 0

    def expect(name, found, text, code, words):
        nonlocal wrong
        right = found == code and all(word in text for word in words)
        wrong += not right
        print(f"{'ok' if right else 'WRONG'} {name}: exit code {found}" + ("" if right else f", expected {code}: {text}"))

    for kind in ["direct", "captured"]:
        alone = [given.run, given.program, kind]
        count, code, text = launches(alone)
        if code == 77:
            sys.exit(77)
        expect(f"{kind}, no fault", code, text, 0, [])
        for launch in range(0, count, max(1, count // given.places)):
            code, text = finished(alone, fail_launch=launch)
            expect(f"{kind}, one rank, launch {launch} of {count}", code, text, 20, [WORDS])
        only_rank_1 = 'test "$OMPI_COMM_WORLD_RANK" = 1 || unset FAKE_CUDA_FAIL_LAUNCH; exec "$0" "$@"'
        pair = [given.run, given.lockstep, "run", "-n", "2", "--", "sh", "-c", only_rank_1, given.program, kind]
        for launch in range(given.places, count, max(1, count // 4)):
            code, text = finished(pair, devices=2, fail_launch=launch)
            expect(f"{kind}, rank 1 of two, launch {launch}", code, text, 20, [WORDS, "rank 1"])
    fits = [given.run, given.program, "captured", "wide"]
    code, text = finished(fits, mib=FITS_MIB)
    expect(f"captured steps in {FITS_MIB} MiB", code, text, 0, [])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
