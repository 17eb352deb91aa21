"""Seconds from a wheel file, in a Python environment that has torch, to a template that was built and has trained on two
ranks. The compiler's cache is not used."""

import pathlib
import re
import subprocess
import sys
import tempfile

from harness.launch import BENCHMARKS, Failed, cached
from harness.measure import Sample
from harness.rows import against

PROGRAMS = ()
TARGETS = ("lockstep_installed",)
NAME = "to a trained template"
LIMIT = 60  # seconds


def _output(*command):
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def run(measurement, only):
    if not only.search(NAME):
        return []
    root, build = BENCHMARKS.parent, measurement.build
    libtorch = (build / "share" / "lockstep" / "libtorch").read_text(encoding="utf-8").splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        _output(root / "scripts" / "wheel", "--build", build, folder)
        [wheel] = pathlib.Path(folder).glob("*.whl")
        compiler = cached(build, "CMAKE_CXX_COMPILER", "c++")
        texts = [_output(sys.executable, "-B", root / "tests" / "consumer" / "package.py", "--seconds", "--compiler", compiler,
                         wheel, libtorch) for _ in range(measurement.rounds)]
    seconds = [float(re.search(r"^seconds ([0-9.]+)$", text, re.M)[1]) for text in texts]
    return [against("wheel", NAME, Sample.of(seconds), LIMIT, "s", 1.0)]
