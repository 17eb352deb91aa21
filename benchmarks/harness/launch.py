"""Starts one measurement: a program on one or more ranks, each on one core."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent
PEERS = BENCHMARKS / "peers"
TIMEOUT_SECONDS = 600
INSTALLED = ("PMIX_INSTALL_PREFIX", "PMIX_PKGLIBDIR")  # where an MPI lies that was moved, as that of a pack for GPUs
VECTORS = "LOCKSTEP_BENCH_VECTORS"


def limit_vectors(widest):
    """From now on programs compute with vectors no wider than `widest`, which is "avx2": our kernels, LibTorch's, oneDNN's
    and MKL's. The bound of a copy or sum is still what the processor can do."""
    os.environ.update({VECTORS: widest, "ATEN_CPU_CAPABILITY": widest, "ONEDNN_MAX_CPU_ISA": widest.upper(),
                       "MKL_ENABLE_INSTRUCTIONS": widest.upper()})


class Failed(Exception):
    """A program of the measurement ended badly; the message has its last lines."""


@dataclass(frozen=True)
class Job:
    """`launch`: "mpi" (ranks of MPI), "group" (processes that start together), "solo" (one process
    on one core), "free" (one on any) or "hosts" (ranks on two hosts, see hosts.sh).

    `ranks` is for "mpi" and "group": rank 0 has the first of `cores`, rank 1 the second, and so on; where there are more
    ranks than cores, they take them in turn. `mpiexec` is the command of another MPI than that of the build. `link`, for
    "hosts", is the rate between them, such as "1gbit"; the ranks of a host share one core. With
    `shares_core` all ranks of "mpi" do.

    What the program records counts as `variant`, if that is given, else as what it says itself.
    Without an `optional` one that fails the measurement goes on. `environment` has pairs of a name
    and a value.
    """

    launch: str
    command: tuple
    variant: str = ""
    ranks: int = 2
    mpiexec: tuple = ()
    optional: bool = False
    environment: tuple = ()
    link: str = ""
    shares_core: bool = False
    cores: int = 2


def _siblings(core):
    """The threads of its physical core, as text."""
    try:
        return pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return str(core)


def physical_cores():
    """One thread of each core that this process may use."""
    own = sorted(os.sched_getaffinity(0), reverse=True)
    return sorted({_siblings(core): core for core in own}.values())


def cores(count=2):
    """Threads of `count` physical cores, if there are so many."""
    found = physical_cores()
    found += sorted(os.sched_getaffinity(0) - set(found))
    if len(found) < count:
        raise Failed(f"these measurements need {count} cores, this process may use {len(found)}")
    return found[:count]


def _pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


def cached(build, name, default):
    """A variable of the build's CMake cache."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\w+=(.+)$", cache, re.MULTILINE)
    return found.group(1) if found else default


def _mpiexec(build):
    mpiexec = cached(build, "MPIEXEC_EXECUTABLE", "mpiexec")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=True)
    open_mpi = re.search("Open MPI|OpenRTE|PRRTE", version.stdout + version.stderr)
    return [mpiexec, *(["--oversubscribe", "--bind-to", "none"] if open_mpi else [])]


def _processes(job, build, scratch):
    """The command and the extra environment of each process to start."""
    if job.launch == "free":
        return [(list(map(str, job.command)), {})]
    own = cores(job.cores)[:1 if job.shares_core else job.cores]
    if job.launch == "solo":
        return [(_pinned(own[0], job.command), {})]
    if job.launch == "hosts":
        hosts = [BENCHMARKS / "hosts.sh", job.link, job.ranks // 2, own[0], own[1], *_mpiexec(build)]
        yields = {"OMPI_MCA_mpi_yield_when_idle": "1"} if job.ranks > len(own) else {}
        meeting = {"LOCKSTEP_BENCH_MEETING": str(scratch / "meeting"), "GLOO_SOCKET_IFNAME": "eth0"}
        return [([*map(str, hosts), *map(str, job.command)], {**yields, **meeting})]
    pinned = [_pinned(own[rank % len(own)], job.command) for rank in range(job.ranks)]
    if job.launch == "mpi":
        ranks = [word for command in pinned for word in (":", "-n", "1", *command)][1:]
        shared = {"OMPI_MCA_mpi_yield_when_idle": "1"} if job.ranks > len(own) else {}
        return [([*map(str, job.mpiexec or _mpiexec(build)), *ranks], shared)]
    meeting = {"WORLD_SIZE": str(job.ranks), "LOCKSTEP_BENCH_MEETING": str(scratch / "meeting")}
    return [(command, {**meeting, "RANK": str(rank)}) for rank, command in enumerate(pinned)]


def _compiled(build):
    """Where torch.compile keeps its code, which another width of vectors must not take: its buffers would be too small."""
    return build / "torch-inductor" / os.environ.get(VECTORS, "widest")


def _environment(scratch, build):
    environment = {name: value for name, value in os.environ.items()
                   if name in INSTALLED or not name.startswith(("OMPI_", "PMI", "SLURM_", "I_MPI_", "CCL_"))}
    environment.update(OMP_NUM_THREADS="1", LOCKSTEP_BENCH_RECORDS=str(scratch / "records"),
                       LOCKSTEP_BENCH_BEGIN=str(time.clock_gettime(time.CLOCK_MONOTONIC)),
                       TORCHINDUCTOR_CACHE_DIR=str(_compiled(build)), OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return environment


def _finish(started, log):
    try:
        codes = [process.wait(TIMEOUT_SECONDS) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    if any(codes):
        log.seek(0)
        tail = log.read().decode(errors="replace").splitlines()[-20:]
        raise Failed(f"exit codes {codes}:\n" + "\n".join(tail))


def run(job, build):
    """Runs the job and returns the records that its processes wrote (see recorder.h)."""
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder, \
            tempfile.TemporaryFile() as log:
        scratch = pathlib.Path(folder)
        records = scratch / "records"
        records.mkdir()
        environment = {**_environment(scratch, build), **dict(job.environment)}
        started = [subprocess.Popen(command, env={**environment, **extra},
                                    stdout=log, stderr=log)
                   for command, extra in _processes(job, build, scratch)]
        try:
            _finish(started, log)
        except (Failed, subprocess.TimeoutExpired) as error:
            raise Failed(f"{' '.join(map(str, job.command))}: {error}") from error
        lines = [line for file in sorted(records.iterdir())
                 for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def program(build, name, *arguments):
    return (build / "benchmarks" / name, *arguments)


def peer(name, *arguments):
    return (sys.executable, PEERS / name, *arguments)
