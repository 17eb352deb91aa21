"""The ratios of the last measurement on each processor family, and the comparison with them.
Rows against a fixed limit have a target, and what is left of a small difference varies: they are neither stored nor
compared.

A file of benchmarks/results holds one family, beside the page with all rows (document.py):
{"machine": text, "ratios": {"suite / row / peer": ratio}, "fast_ratios": the same of the fastest tenths, where known}."""

import json
import os
import pathlib
import re
import types
from dataclasses import dataclass, field

from .launch import VECTORS
from .rows import LIMIT

RESULTS = pathlib.Path(__file__).resolve().parent.parent / "results"
LEAST = 0.9  # of the stored ratio
VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}


class NothingStored(Exception):
    """No measurement of this processor family is stored; the message says how to store one."""


def family(cpuinfo):
    """From the text of /proc/cpuinfo, for example "amd-26-avx512": vendor, family, vector width."""

    def value(key):
        found = re.search(rf"^{key}\s*: (.*)$", cpuinfo, re.MULTILINE)
        return found.group(1).strip() if found else "unknown"

    flags = value("flags").split()
    vectors = next((name for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"))
                    if flag in flags), "plain")
    vendor = VENDORS.get(value("vendor_id"), re.sub(r"\W+", "", value("vendor_id")).lower())
    return f"{vendor}-{value('cpu family')}-{vectors}"


def own_family():
    """Of this machine: "amd-26-avx512", and "amd-26-avx512-as-avx2" where the programs may use no wider vectors."""
    name = family(pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace"))
    vectors = os.environ.get(VECTORS)
    return f"{name}-as-{vectors}" if vectors else name


def key(row):
    return f"{row.suite} / {row.name} / {row.peer_name}"


def _with_ratio(rows):
    return [row for row in rows if row.ratio is not None and row.peer_name != LIMIT]


def _file(name, folder):
    return (folder or RESULTS) / f"{name}.json"


def page(name):
    """The page with the rows of a family."""
    return RESULTS / f"{name}.md"


def load(name, folder=None):
    """The stored ratios of a family by key."""
    return _load(name, folder)["ratios"]


def load_fast(name, folder=None):
    """The same of the fastest tenths of the calls; not every row has one."""
    return _load(name, folder).get("fast_ratios", {})


def _load(name, folder):
    path = _file(name, folder)
    if not path.exists():
        raise NothingStored(f"no results of a processor like this one ({name}) are stored in "
                            f"{path.parent}; store this machine's: ./scripts/bench --store")
    return json.loads(path.read_text(encoding="utf-8"))


def save(name, machine, rows, folder=None):
    """Stores the ratios of `rows`. Rows that were not measured this time keep theirs."""
    path = _file(name, folder)
    ratios, fast = (load(name, folder), load_fast(name, folder)) if path.exists() else ({}, {})
    ratios.update({key(row): round(row.ratio, 4) for row in _with_ratio(rows)})
    fast.update({key(row): round(row.fast_ratio, 4) for row in _with_ratio(rows) if row.fast_ratio is not None})
    path.parent.mkdir(parents=True, exist_ok=True)
    table = json.dumps({"machine": machine, "ratios": dict(sorted(ratios.items())),
                        "fast_ratios": dict(sorted(fast.items()))}, indent=1)
    path.write_text(table + "\n", encoding="utf-8")


def _best(rows, ratio_of):
    """The best ratio by key: others can slow a run down, nothing makes one fast."""
    best = {}
    for row in _with_ratio(rows):
        ratio = ratio_of(row)
        if ratio is not None:
            best[key(row)] = max(ratio, best.get(key(row), ratio))
    return best


@dataclass
class Comparison:
    """What a measurement has become, compared with the stored ratios."""

    fallen: dict = field(default_factory=dict)    # texts by key: below LEAST of what is stored
    vanished: list = field(default_factory=list)  # keys: stored, and no longer measured
    unknown: list = field(default_factory=list)   # keys: measured, and not stored
    missing: list = field(default_factory=list)   # keys: stored, of an optional peer that is not here
    compared: int = 0

    @property
    def failed(self):
        return bool(self.fallen or self.vanished) or self.compared == 0

    def as_text(self):
        lines = [f"{self.compared} rows compared, {len(self.fallen)} below {LEAST} of the stored "
                 "ratio"]
        lines += [f"fell: {text}" for text in self.fallen.values()]
        lines += [f"no longer measured: {name}" for name in self.vanished]
        lines += [f"peer not installed, so not compared: {name}" for name in self.missing]
        lines += [f"not stored, so not compared: {name}" for name in self.unknown]
        return "\n".join(lines)


def rows_of(keys):
    """{suite: pattern of the names of its rows} for keys of ratios."""
    names = {}
    for suite, row, _ in (name.split(" / ") for name in keys):
        names.setdefault(suite, set()).add(re.escape(row))
    return {suite: re.compile(f"^({'|'.join(sorted(found))})$") for suite, found in names.items()}


def compare(rows, ratios, suites, only=re.compile(""), fast_ratios=types.MappingProxyType({})):
    """Compares `rows`, which `suites` gave for the row names that match `only`, with `ratios`: of several runs, also of a
    row that was measured twice, the best one counts. A row falls if that of its fastest calls is below `fast_ratios`, too."""
    result = Comparison()
    measured = _best(rows, lambda row: row.best_ratio)
    fast = _best(rows, lambda row: row.fast_ratio)
    for name, ratio in measured.items():
        if name not in ratios:
            result.unknown.append(name)
            continue
        result.compared += 1
        is_fast = name in fast and name in fast_ratios and fast[name] >= LEAST * fast_ratios[name]
        if ratio < LEAST * ratios[name] and not is_fast:
            result.fallen[name] = f"{name}: {ratio:.3f}, stored {ratios[name]:.3f}"
    optional = {key(row) for row in rows if row.optional and row.ratio is None}
    for name in ratios:
        suite, row_name, _ = name.split(" / ")
        if suite in suites and only.search(row_name) and name not in measured:
            (result.missing if name in optional else result.vanished).append(name)
    return result
