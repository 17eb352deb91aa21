"""Runs jobs in turn (A B A B ...) and collects what they recorded."""

import pathlib
import statistics
import sys
from dataclasses import dataclass, field, replace

from . import launch
from .cores import Cores, spread
from .load import ForeignLoad

LOUD_CORES = 0.25


@dataclass
class Sample:
    """One variant's measurements of one thing, a value for each run; `calls` has those of all runs."""

    medians: list = field(default_factory=list)
    minima: list = field(default_factory=list)
    calls: list = field(default_factory=list)
    notes: dict = field(default_factory=dict)

    @classmethod
    def of(cls, values):
        """From one value of each run."""
        return cls(medians=list(values), minima=list(values), calls=list(values))

    def noted(self, note):
        return Sample.of(self.notes[note])

    def fastest(self):
        return Sample.of(self.minima)

    def add(self, values):
        self.medians.append(statistics.median(values))
        self.minima.append(min(values))
        self.calls += values

    @property
    def median(self):
        return statistics.median(self.medians)

    @property
    def minimum(self):
        return min(self.minima)

    @property
    def fast(self):
        """What a tenth of all calls does not exceed: the machine then disturbed them least."""
        return spread(self.calls)[0]


def together(records):
    """Last arrival to last departure of each call, over the ranks."""
    begins = [max(ranks) for ranks in zip(*(record["begin"] for record in records))]
    ends = [max(ranks) for ranks in zip(*(record["end"] for record in records))]
    return [end - begin for begin, end in zip(begins, ends)]


def each(records):
    """How long each call took, on whichever rank."""
    return [end - begin for record in records
            for begin, end in zip(record["begin"], record["end"])]


@dataclass(frozen=True)
class Measurement:
    """How measurements are made: which build, how many runs, how many tries of a disturbed one. `cores` collects what
    the machine was like meanwhile."""

    build: pathlib.Path
    rounds: int
    repeats: int
    cores: Cores = field(default_factory=Cores, compare=False)

    def with_rounds(self, rounds):
        return replace(self, rounds=rounds)

    def alternate(self, jobs, seconds_of):
        """Runs each of {name: job} once a round; returns {(measured name, variant): Sample}."""
        samples = {}
        jobs = dict(jobs)
        for turn in range(self.rounds):
            for name, job in list(jobs.items()):
                print(f"  round {turn + 1}/{self.rounds}: {name}", file=sys.stderr)
                self.cores.look(self.build)
                try:
                    _collect(samples, job, self._quiet_run(name, job), seconds_of)
                except launch.Failed as error:
                    if not job.optional:
                        raise
                    print(f"warning: {name} is left out: {error}", file=sys.stderr)
                    del jobs[name]
        return samples

    def _quiet_run(self, name, job):
        """The records of a run that others left alone, or of the quietest try. Of "hosts" those of the first try: the
        ranks of the second host have other parents, so that they count as others."""
        if job.launch == "hosts":
            return launch.run(job, self.build)
        tries = []
        for _ in range(1 + self.repeats):
            with ForeignLoad() as load:
                records = launch.run(job, self.build)
            tries.append((load.cores, records))
            if load.cores <= LOUD_CORES:
                break
        cores, records = min(tries, key=lambda one: one[0])
        if cores > LOUD_CORES:
            print(f"warning: {name}: other processes used {cores:.2f} cores in the quietest of "
                  f"{len(tries)} runs", file=sys.stderr)
        return records


def _collect(samples, job, records, seconds_of):
    groups = {}
    for record in records:
        key = record["name"], job.variant or record["variant"]
        groups.setdefault(key, []).append(record)
    for key, ranks in groups.items():
        sample = samples.setdefault(key, Sample())
        if ranks[0]["begin"]:
            sample.add(seconds_of(ranks))
        for note in ranks[0].keys() - {"name", "variant", "begin", "end"}:
            sample.notes.setdefault(note, []).append(max(record[note] for record in ranks))
