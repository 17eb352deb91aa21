"""Finds the programs of the CUDA toolkit that read what nvcc made."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys


def skip(why):
    """Ends the program as a skipped test."""
    print(f"skipped: {why}")
    sys.exit(77)


def cuobjdump():
    """The toolkit's, else that of the torch environment, which has nvdisasm beside it. Skips where there is none."""
    found = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    package = importlib.util.find_spec("triton")
    if not found and package:
        beside = pathlib.Path(package.origin).parent / "backends/nvidia/bin/cuobjdump"
        found = str(beside) if beside.exists() else None
    if not found:
        skip("there is no cuobjdump: it comes with a CUDA toolkit and with the triton package")
    return found


def nvcc_version(build):
    """Of the compiler that this build tree uses, such as 13.0.88."""
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text(encoding="utf-8")
    program = re.search(r"^LOCKSTEP_NVCC_PROGRAM:\w+=(.*)$", cache, re.M)[1]
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\bV(\d+\.\d+\.\d+)", shown)[1]
