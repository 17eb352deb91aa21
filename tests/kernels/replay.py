"""Runs the PTX that nvcc made of every kernel on the launches that kernels_launches records, and compares bits.

  replay.py --program build/tests/kernels/kernels_launches --objects build/amp/cuda_*_cu.o [--only KERNEL]

The expected memory is that after the same launch on the emulated device: the same source, compiled for the host. Exit
code 1: a kernel has other bits, is in no launch, or does what a device does not allow; 77: nothing can be compared here,
and why.
"""

import argparse
import dataclasses
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import numpy as np  # noqa: E402

from cuda_tools import cuobjdump, skip  # noqa: E402
from ptx_code import Module  # noqa: E402
from ptx_machine import Fault, Grid, Memory  # noqa: E402
from recording import launches, short_names  # noqa: E402

DTYPES = {"f4": "f4", "f8": "f8", "f2": "f2", "bf16": "u2", "u2": "u2", "bytes": "u1"}


@dataclasses.dataclass
class Work:
    """Of one launch whose case counts elements."""
    case: str
    threads: int       # of a block
    instructions: list  # of the kernel
    hits: list         # how many threads executed each
    elements: int
    traffic: dict      # bytes of all accesses by (direction, bits of one access)
    distinct: int      # bytes read at least once, and bytes written at least once


@dataclasses.dataclass
class Result:
    """Of one kernel."""
    launches: int = 0
    problems: list = dataclasses.field(default_factory=list)
    hits: np.ndarray | None = None
    work: list = dataclasses.field(default_factory=list)


class Kernels:
    """The PTX of all kernels: {short name: (module, name)}."""

    def __init__(self, texts):
        self.found = {}
        for text in texts:
            module = Module(text)
            for name, short in zip(module.kernels, short_names(module.kernels)):
                self.found[short] = (module, name)

    def run(self, launch, result):
        """Runs one launch and notes in `result` what it did."""
        module, name = self.found[launch.kernel]
        memory = Memory(launch.before, launch.base, [(place, size) for place, size, _ in launch.arrays])
        grid = Grid(module, memory, launch.blocks, launch.threads)
        result.launches += 1
        try:
            hits = grid.run(name, launch.parameters)
        except (Fault, NotImplementedError) as fault:
            result.problems.append(f"{launch.case}: {fault}")
            return
        result.hits = hits if result.hits is None else result.hits + hits
        result.problems += differences(launch, memory.bytes)
        if launch.elements:
            distinct = sum(int(touched.sum()) for touched in memory.touched.values())
            result.work.append(Work(launch.case, launch.threads, module.functions[name].instructions, hits.tolist(),
                                    launch.elements, grid.traffic, distinct))


def differences(launch, found):
    """Lines that say where memory is not what the emulated device left: other bits, but any NaN is as good as another."""
    for number, (place, size, kind) in enumerate(launch.arrays):
        expected = np.frombuffer(launch.after[place:place + size], DTYPES[kind])
        got = found[place:place + size].view(DTYPES[kind])
        bits = f"u{expected.itemsize}"
        other = np.nonzero((expected.view(bits) != got.view(bits)) & ~(is_nan(expected, kind) & is_nan(got, kind)))[0]
        if len(other):
            at = other[0]
            yield (f"{launch.case}, {launch.blocks} blocks: {len(other)} of {len(got)} elements of array {number} ({kind}) "
                   f"differ, element {at} is {got[at]!r}, not {expected[at]!r}")


def is_nan(values, kind):
    if kind == "bf16":
        return values & 0x7fff > 0x7f80
    return np.isnan(values) if kind[0] == "f" else np.zeros(len(values), bool)


def replayed(kernels, recorded):
    """{kernel: Result}, also of kernels that no launch names."""
    results = {name: Result() for name in kernels.found}
    for launch in recorded:
        if launch.kernel in results:
            kernels.run(launch, results[launch.kernel])
    for result in results.values():
        if not result.launches:
            result.problems.append("no launch of tests/kernels/launches.cpp runs this kernel")
    return results


def ptx_of(objects):
    tool = cuobjdump()
    return [subprocess.run([tool, "-ptx", path], capture_output=True, text=True, check=True).stdout for path in objects]


def replay(program, objects, only="", counted=False):
    """`counted`: the launches alone whose work is counted."""
    kernels = Kernels(ptx_of(objects))
    if not kernels.found:
        skip("the objects of this build hold no PTX: LOCKSTEP_CUDA_ARCHITECTURES")
    kernels.found = {name: found for name, found in kernels.found.items() if only in name}
    with tempfile.TemporaryDirectory() as folder:
        recorded = launches(program, str(pathlib.Path(folder) / "launches"))
        return replayed(kernels, (launch for launch in recorded if launch.elements or not counted))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--program", required=True)
    options.add_argument("--objects", nargs="+", required=True)
    options.add_argument("--only", default="")
    chosen = options.parse_args()
    results = replay(chosen.program, chosen.objects, chosen.only)
    for name, result in sorted(results.items()):
        never = int((result.hits == 0).sum()) if result.hits is not None else 0
        whole = len(result.hits) if result.hits is not None else 0
        verdict = "other bits" if result.problems else "equal bits"
        print(f"{name:40s} {verdict}, {result.launches} launches, {whole - never} of {whole} instructions executed")
        for problem in result.problems[:3]:
            print("    " + problem)
    print(f"{len(results)} kernels, {sum(result.launches for result in results.values())} launches")
    return 1 if not results or any(result.problems for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
