#!/usr/bin/env python3
"""Measures lockstep beside its peers, in turn; prints a table and writes DIR/bench.json."""

import argparse
import importlib
import json
import pathlib
import re
import sys

import plot_steps
from harness import cores, document, stored
from harness.launch import Failed, limit_vectors
from harness.measure import Measurement
from harness.rows import as_text

SUITES = ("allreduce", "step", "update", "layers", "exported", "c", "memory", "snapshot", "data", "startup", "nodes")
ASKED_FOR = ("gpu", "ranks", "wheel")  # only when asked for
ROUNDS_AGAIN = 3  # runs of what --check finds slow


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES + ASKED_FOR))
    parser.add_argument("--build", type=pathlib.Path, metavar="DIR", help="the build folder")
    parser.add_argument("--list-targets", action="store_true",
                        help="only name what the suites need built, for scripts/bench")
    parser.add_argument("--rounds", type=int, default=3, metavar="N",
                        help="runs of each program (3)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N",
                        help="further tries of a run that other processes disturbed (3)")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX",
                        help="rows whose name matches")
    parser.add_argument("--dry-run", action="store_true",
                        help="the gpu suite: tiny, on the CPU, to check its programs")
    parser.add_argument("--store", action="store_true",
                        help="also write the rows and the ratios of this processor family in benchmarks/results, and draw "
                        "the chart of docs/performance.md")
    parser.add_argument("--vectors", choices=("avx2",),
                        help="measure as on a processor whose vectors are no wider; stored by themselves")
    parser.add_argument("--check", action="store_true",
                        help="compare the ratios with those stored for this processor family; measure what is below "
                        f"{stored.LEAST} of the stored once more, {ROUNDS_AGAIN} times, and exit with 1 if it still is")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES + ASKED_FOR)
    if unknown:
        parser.error(f"no suite is named {', '.join(sorted(unknown))}; there are "
                     f"{', '.join(SUITES + ASKED_FOR)}")
    if arguments.dry_run and arguments.suites != ["gpu"]:
        parser.error("--dry-run is for the gpu suite")
    if arguments.check and (arguments.dry_run or arguments.store):
        parser.error("--check goes with neither --dry-run nor --store")
    if arguments.list_targets:
        return arguments
    if arguments.build is None:
        parser.error("--build is needed")
    if arguments.rounds < 1 or arguments.repeats < 0:
        parser.error("--rounds must be at least 1, and --repeats at least 0")
    arguments.build = arguments.build.resolve()
    if arguments.vectors:
        limit_vectors(arguments.vectors)
    return arguments


def _suite(name):
    return importlib.import_module(f"suites.{name}")


def _comparison(arguments):
    """What compares rows of suites with what is stored now."""
    family = stored.own_family()
    ratios, fast_ratios = stored.load(family), stored.load_fast(family)
    return lambda rows, suites: stored.compare(rows, ratios, suites, arguments.only, fast_ratios)


def _check(rows, compare, arguments):
    """Prints what has become of the stored ratios; whether it is as good as they are."""
    found = compare(rows)
    again = Measurement(arguments.build, ROUNDS_AGAIN, arguments.repeats)
    for name, only in stored.rows_of(found.fallen).items():
        print(f"suite {name} again: {only.pattern}", file=sys.stderr)
        rows = rows + _suite(name).run(again, only)
    found = compare(rows)
    print(found.as_text())
    return not found.failed


def main():
    arguments = _arguments()
    if arguments.list_targets:
        print(f"benchmark_{cores.PROGRAM}")
        for name in arguments.suites or SUITES:
            suite = _suite(name)
            print("\n".join([*(f"benchmark_{program}" for program in suite.PROGRAMS), *getattr(suite, "TARGETS", ())]))
        return
    try:
        compare = _comparison(arguments) if arguments.check else None
    except stored.NothingStored as error:
        sys.exit(f"run.py: {error}")
    rows, remarks, names = [], {}, list(arguments.suites or SUITES)
    try:
        for name in list(names):
            print(f"suite {name}", file=sys.stderr)
            if reason := getattr(_suite(name), "unavailable", str)():
                print(f"warning: suite {name} is left out: {reason}", file=sys.stderr)
                names.remove(name)
                continue
            measurement = Measurement(arguments.build, arguments.rounds, arguments.repeats)
            options = {"dry_run": True} if arguments.dry_run else {}
            rows += _suite(name).run(measurement, arguments.only, **options)
            if looks := measurement.cores.as_text():
                remarks[name] = looks
    except Failed as error:
        sys.exit(f"run.py: {error}")
    print(as_text(rows))
    missed = [row for row in rows if row.missed]
    print("\n".join([*map(": ".join, remarks.items()), f"{len(rows)} rows, {len(missed)} below their target"]))
    if arguments.dry_run:
        return
    table = json.dumps([row.as_json() for row in rows], indent=1)
    (arguments.build / "bench.json").write_text(table + "\n", encoding="utf-8")
    print(f"written to {arguments.build / 'bench.json'}")
    if arguments.store:
        document.update(stored.page(stored.own_family()), rows, remarks, arguments.only.pattern)
        stored.save(stored.own_family(), document.machine(), rows)
        plot_steps.SVG.write_text(plot_steps.drawn(), encoding="utf-8")
    if arguments.check:
        sys.exit(0 if _check(rows, lambda rows: compare(rows, names), arguments) else 1)


if __name__ == "__main__":
    main()
