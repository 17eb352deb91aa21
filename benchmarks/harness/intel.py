"""Intel MPI and oneCCL as peers, where build/intel has them: an environment of their own, because in another one Intel's
mpiexec would hide that of the build. Nothing of lockstep needs them."""

import subprocess
import sys
from dataclasses import dataclass

from .launch import BENCHMARKS, PEERS, Job, cached


@dataclass(frozen=True)
class Library:
    package: str  # of PyPI
    header: str
    flags: tuple
    settings: tuple = ()


# Both ranks are pinned already.
SETTINGS = ("I_MPI_FABRICS=shm", "I_MPI_PIN=off")
LIBRARIES = {
    "intel-mpi": Library("impi-devel", "mpi.h", ("-lmpi",)),
    # Without a thread of its own, which would share the core of its rank. "direct" is Intel MPI's collective, the
    # fastest of its algorithms up to 1 MB.
    "oneccl": Library("oneccl-devel", "oneapi/ccl.hpp", ("-DLOCKSTEP_BENCHMARK_ONECCL", "-lccl", "-lmpi"),
                      ("CCL_WORKER_OFFLOAD=0", "CCL_ALLREDUCE=direct:0-1048576", "CCL_LOG_LEVEL=error")),
}


def _folder(build):
    return build / "intel"


def is_installed(build, name):
    return (_folder(build) / "include" / LIBRARIES[name].header).exists()


def how_to_install(build):
    packages = " ".join(library.package for library in LIBRARIES.values())
    return f"python3 -m venv {_folder(build)} && {_folder(build)}/bin/pip install {packages}"


def _compile(build, name, program):
    folder = _folder(build)
    sources = [PEERS / "allreduce_intel.cpp", BENCHMARKS / "recorder.cpp"]
    command = [cached(build, "CMAKE_CXX_COMPILER", "c++"), "-std=c++17", "-O3", "-march=native", "-w",
               f"-I{BENCHMARKS}", f"-I{folder}/include", *sources, "-o", program, f"-L{folder}/lib",
               f"-Wl,-rpath-link,{folder}/lib", *LIBRARIES[name].flags]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def jobs(build):
    """{name: Job} of the libraries that are installed and for which the peer compiles."""
    found = {}
    for name in filter(lambda name: is_installed(build, name), LIBRARIES):
        program = _folder(build) / f"allreduce-{name}"
        done = _compile(build, name, program)
        if done.returncode != 0:
            print(f"warning: {name} is left out: {done.stderr}", file=sys.stderr)
            continue
        mpiexec = ("env", *SETTINGS, *LIBRARIES[name].settings, f"LD_LIBRARY_PATH={_folder(build)}/lib",
                   _folder(build) / "bin" / "mpiexec.hydra")
        found[name] = Job("mpi", (program,), mpiexec=mpiexec, optional=True)
    if not all(is_installed(build, name) for name in LIBRARIES):
        print(f"optional peers are not installed; to install them: {how_to_install(build)}", file=sys.stderr)
    return found
