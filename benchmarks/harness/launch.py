"""Starts one measurement: a program on one or two ranks, each on a core of its own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass

BENCHMARKS = pathlib.Path(__file__).resolve().parent.parent
PEERS = BENCHMARKS / "peers"
TIMEOUT_SECONDS = 600


class Failed(Exception):
    """A program of the measurement ended badly; the message has its last lines."""


@dataclass(frozen=True)
class Job:
    """`launch`: "mpi" (2 ranks), "pair" (2 processes that start together), "solo" (one process on
    one core) or "free" (one on any).

    What the program records counts as `variant`, if that is given, else as what it says itself.
    Without an `optional` one that fails the measurement goes on. `environment` has pairs of a name
    and a value.
    """

    launch: str
    command: tuple
    variant: str = ""
    optional: bool = False
    environment: tuple = ()


def cores():
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise Failed(f"these measurements need 2 cores, this process may use {len(found)}")
    return found[:2]


def _pinned(core, command):
    return ["taskset", "-c", str(core), *map(str, command)]


def _mpiexec(build):
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^MPIEXEC_EXECUTABLE:\w+=(.+)$", cache, re.MULTILINE)
    mpiexec = found.group(1) if found else "mpiexec"
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=True)
    open_mpi = re.search("Open MPI|OpenRTE|PRRTE", version.stdout + version.stderr)
    return [mpiexec, *(["--oversubscribe", "--bind-to", "none"] if open_mpi else [])]


def _processes(job, build, scratch):
    """The command and the extra environment of each process to start."""
    if job.launch == "free":
        return [(list(map(str, job.command)), {})]
    first, second = cores()
    if job.launch == "mpi":
        ranks = ["-n", "1", *_pinned(first, job.command), ":", "-n", "1",
                 *_pinned(second, job.command)]
        return [(_mpiexec(build) + ranks, {})]
    if job.launch == "solo":
        return [(_pinned(first, job.command), {})]
    meeting = {"WORLD_SIZE": "2", "LOCKSTEP_BENCH_MEETING": str(scratch / "meeting")}
    return [(_pinned(core, job.command), {**meeting, "RANK": str(rank)})
            for rank, core in enumerate((first, second))]


def _environment(scratch):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    environment.update(OMP_NUM_THREADS="1", LOCKSTEP_BENCH_RECORDS=str(scratch / "records"),
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
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
        environment = {**_environment(scratch), **dict(job.environment)}
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
