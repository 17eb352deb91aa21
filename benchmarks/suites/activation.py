"""Activation checkpointing beside the plain run, uniform segments, and Python's; suite memory."""

from functools import partial

from harness import measure
from harness.launch import Job, peer, program
from harness.measure import Sample
from harness.rows import against, compare

_row, _limit = partial(compare, "memory"), partial(against, "memory")


def _run(measurement, *arguments):
    job = Job("solo", program(measurement.build, "activation", *arguments))
    return measurement.alternate({" ".join(map(str, arguments)): job}, measure.each)


def _extra(variant, base):
    """By how much the fastest step of each run is slower than that of the base."""
    return Sample.of([ours - other for ours, other in zip(variant.minima, base.minima)])


def _plans(measurement, chain, percent, memory_target=None, time_target=None):
    """Plain, planner and the best uniform plan, with rows of the first two."""
    samples = _run(measurement, chain, "plans", percent)
    plain, ours, uniform = (samples[chain, name] for name in ("plain", "planner", "uniform"))
    peak = ours.noted("chain peak")
    return (plain, ours, uniform), [
        _row(f"{chain} peak", ours.noted("peak"), plain.noted("peak"), "plain", "MB",
             memory_target),
        _row(f"{chain} time", ours.fastest(), plain.fastest(), "plain", "ms", time_target),
        _row(f"{chain} peak to prediction", peak, ours.noted("predicted"), "predicted", "MB", 0.97),
        _row(f"{chain} peak to budget", peak, ours.noted("budget"), "budget", "MB", 1.0)]


def _python(measurement, chain, *segments):
    """checkpoint_sequential, ours and Python's."""
    ours = program(measurement.build, "activation", chain, "uniform", *segments)
    jobs = {f"{chain} uniform": Job("solo", ours),
            f"{chain} python": Job("solo", peer("checkpoint_chains.py", chain, *segments))}
    samples = measurement.alternate(jobs, measure.each)
    rows = []
    for count in segments:
        name = f"segments {count}"
        ours, python = samples[chain, name], samples[chain, f"python {name}"]
        rows.append(_row(f"{chain} {name} time", ours.fastest(), python.fastest(), "python", "ms",
                         1.0))
        rows.append(_row(f"{chain} {name} peak", ours.noted("peak"), python.noted("peak"), "python",
                         "MB", 0.97))
    return rows


def _bert(measurement):
    return _plans(measurement, "bert-base", 39, 2.5, 1 / 1.25)[1]


def _encoder(measurement):
    return _python(measurement, "encoder", 1, 4, 12)


def _resnet(measurement):
    (plain, ours, uniform), rows = _plans(measurement, "resnet50", 60)
    return rows + [_row("resnet50 extra time", _extra(ours, plain), _extra(uniform, plain),
                        "best uniform", "ms", 1 / 0.9)]


def _residual(measurement):
    (_, ours, _), rows = _plans(measurement, "residual-1000", 16.5, 6.0, 1 / 1.35)
    in_use = _row("residual-1000 budget in use", ours.noted("budget"), ours.noted("chain peak"),
                  "peak", "MB", 0.97)
    return rows + [in_use] + _python(measurement, "residual-1000", 18)


def _region(measurement):
    samples = _run(measurement, "regions")
    tiny, costly = ({name: samples[f"{kind} region", name]
                     for name in ("checkpoint", "plain", "forward")} for kind in ("tiny", "costly"))
    calls = tiny["plain"].notes["calls"][0]
    recompute = _extra(tiny["checkpoint"], tiny["plain"])
    overhead = [spent / calls for spent in _extra(recompute, tiny["forward"]).minima]
    return [_limit("overhead of a region", Sample.of(overhead), 20, "us", 1.0),
            _row("recompute of a region", _extra(costly["checkpoint"], costly["plain"]),
                 costly["forward"].fastest(), "forward", "ms", 0.95)]


def _solver(measurement):
    solver = _run(measurement, "solver")["solver", "planner"]
    return [_limit("planner 100 stages 500 slots", solver.fastest(), 2000, "ms", 1.0)]


PARTS = {"bert-base": _bert, "encoder": _encoder, "resnet50": _resnet, "residual-1000": _residual,
         "region": _region, "planner": _solver}


def run(measurement, only):
    """Rows of a part are measured together, if its name is asked for, or "activation"."""
    rows = []
    for name, part in PARTS.items():
        if only.search(name) or only.search("activation"):
            rows += part(measurement)
    return rows
