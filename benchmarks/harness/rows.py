"""The rows of build/bench.json and the table that people read."""

from dataclasses import asdict, dataclass, field
from typing import Optional


@dataclass
class Row:
    """`ours` and `peer` are medians of run medians; ratio > 1: ours is better. A peer that could not
    run has no figure, and `remark` says why; `optional`: it need not be installed. `ratios`: those of
    each run of ours with the peer's of the same turn; `fast_ratio`: that of the fastest tenth of all calls."""

    suite: str
    name: str
    ours: float
    peer: Optional[float]
    peer_name: str
    unit: str
    better: str
    ratio: Optional[float]
    min: float
    median: float
    runs: int
    target: Optional[float] = None
    remark: str = ""
    optional: bool = False
    ratios: list = field(default_factory=list)
    fast_ratio: Optional[float] = None

    @property
    def best_ratio(self):
        return max(self.ratios, default=self.ratio)

    @property
    def missed(self):
        return None not in (self.target, self.ratio) and self.ratio < self.target

    def as_json(self):
        return asdict(self)


LIMIT = "limit"  # the peer of against()
MANY = 1e6  # the ratio of something to nothing
SCALES = {"s": 1.0, "us": 1e6, "ms": 1e3, "MB": 1e-6}


def compare(suite, name, ours, peer, peer_name, unit, target=None):
    """A row from two samples, of which the lower is better."""
    scale = SCALES[unit]
    return Row(suite, name, ours.median * scale, peer.median * scale, peer_name, unit, "lower",
               peer.median / ours.median, ours.minimum * scale, ours.median * scale,
               len(ours.medians), target,
               ratios=[theirs / mine for theirs, mine in zip(peer.medians, ours.medians)],
               fast_ratio=peer.fast / ours.fast)


def counted(suite, name, ours, peer, peer_name, unit, target=None):
    """A row from two counts, of which the lower is better."""
    ratio = peer / ours if ours > 0 else MANY
    return Row(suite, name, ours, peer, peer_name, unit, "lower", ratio, ours, ours, 1, target)


def absent(suite, name, ours, peer_name, unit, remark, optional=False):
    """A row for a peer that is not here."""
    median = ours.median * SCALES[unit]
    return Row(suite, name, median, None, peer_name, unit, "lower", None,
               ours.minimum * SCALES[unit], median, len(ours.medians), None, remark, optional)


def against(suite, name, ours, limit, unit, target=None):
    """A row from a sample and a fixed limit in the row's unit."""
    median = ours.median * SCALES[unit]
    return Row(suite, name, median, limit, LIMIT, unit, "lower", limit / median,
               ours.minimum * SCALES[unit], median, len(ours.medians), target)


def predicted(suite, name, ours, prediction, unit, target=None):
    """A row from a measured time and a predicted one, in seconds: the ratio is the shorter to the longer."""
    scale, measured = SCALES[unit], ours.median
    return Row(suite, name, measured * scale, prediction * scale, "predicted", unit, "lower",
               min(prediction / measured, measured / prediction), ours.minimum * scale, measured * scale,
               len(ours.medians), target)


HEADINGS = ("suite", "row", "ours", "peer", "peer takes", "unit", "ratio", "target", "", "fast ratio", "min",
            "runs")


def _number(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _ratio(value):
    return "" if value is None else f"{value:.{3 if value < 10 else 1}f}"


def _cells(row):
    target = "" if row.target is None else f"{row.target:g}"
    verdict = "" if row.target is None else ("missed" if row.missed else "ok")
    peer = row.remark if row.peer is None else _number(row.peer)
    return (row.suite, row.name, _number(row.ours), row.peer_name, peer, row.unit, _ratio(row.ratio), target,
            verdict, _ratio(row.fast_ratio), _number(row.min), str(row.runs))


def as_text(rows):
    table = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in table)


def as_markdown(rows):
    heading = "| " + " | ".join(HEADINGS) + " |"
    rule = "|" + "---|" * len(HEADINGS)
    return "\n".join([heading, rule, *("| " + " | ".join(_cells(row)) + " |" for row in rows)])
