"""Activation checkpointing beside the plain run, uniform segments, and Python's; suite memory."""

from harness import measure
from harness.launch import Job, peer, program
from harness.rows import against, compare


def _sample(values):
    sample = measure.Sample()
    for value in values:
        sample.add([value])
    return sample


def _run(measurement, *arguments):
    job = Job("solo", program(measurement.build, "activation", *arguments))
    samples = measurement.alternate({" ".join(map(str, arguments)): job}, measure.each)
    return {variant: sample for (_, variant), sample in samples.items()}


def _extra(variant, base):
    """By how much the fastest step of a run is slower than that of the plain variant."""
    return [ours - plain for ours, plain in zip(variant.minima, base.minima)]


def _plans(measurement, chain, percent, memory_target=None, time_target=None):
    """The planner against plain: memory, time, and what was predicted."""
    samples = _run(measurement, chain, "plans", percent)
    plain, ours = samples["plain"], samples["planner"]
    peak = _sample(ours.notes["chain peak"])
    return samples, [
        compare("memory", f"{chain} peak", _sample(ours.notes["peak"]),
                _sample(plain.notes["peak"]), "plain", "MB", memory_target),
        compare("memory", f"{chain} time", _sample(ours.minima), _sample(plain.minima), "plain",
                "ms", time_target),
        compare("memory", f"{chain} peak to prediction", peak, _sample(ours.notes["predicted"]),
                "predicted", "MB", 0.97),
        compare("memory", f"{chain} peak to budget", peak, _sample(ours.notes["budget"]), "budget",
                "MB", 1.0)]


def _python(measurement, chain, *segments):
    """checkpoint_sequential, ours and Python's."""
    jobs = {"ours": Job("solo", program(measurement.build, "activation", chain, "uniform",
                                        *segments)),
            "python": Job("solo", peer("checkpoint_chains.py", chain, *segments))}
    samples = measurement.alternate(jobs, measure.each)
    rows = []
    for count in segments:
        ours, python = samples[chain, f"segments {count}"], samples[chain, f"python segments {count}"]
        name = f"{chain} {count} segments"
        rows.append(compare("memory", f"{name} time", _sample(ours.minima), _sample(python.minima),
                            "python", "ms", 1.0))
        rows.append(compare("memory", f"{name} peak", _sample(ours.notes["peak"]),
                            _sample(python.notes["peak"]), "python", "MB", 0.97))
    return rows


def _bert(measurement):
    return _plans(measurement, "bert-base", 39, 2.5, 1 / 1.25)[1]


def _encoder(measurement):
    return _python(measurement, "encoder", 1, 4, 12)


def _resnet(measurement):
    samples, rows = _plans(measurement, "resnet50", 60)
    plain = samples["plain"]
    rows.append(compare("memory", "resnet50 extra time", _sample(_extra(samples["planner"], plain)),
                        _sample(_extra(samples["uniform"], plain)), "best uniform", "ms", 1 / 0.9))
    return rows


def _residual(measurement):
    samples, rows = _plans(measurement, "residual-1000", 16.5, 6.0, 1 / 1.35)
    ours = samples["planner"]
    rows.append(compare("memory", "residual-1000 budget in use", _sample(ours.notes["budget"]),
                        _sample(ours.notes["chain peak"]), "peak", "MB", 0.97))
    return rows + _python(measurement, "residual-1000", 18)


def _overhead(measurement):
    samples = measurement.alternate(
        {"regions": Job("solo", program(measurement.build, "activation", "regions"))},
        measure.each)
    tiny, costly = ({variant: sample for (name, variant), sample in samples.items() if name == kind}
                    for kind in ("tiny region", "costly region"))
    calls = tiny["plain"].notes["calls"][0]
    spent = [(extra - forward) / calls for extra, forward
             in zip(_extra(tiny["checkpoint"], tiny["plain"]), tiny["forward"].minima)]
    return [
        against("memory", "overhead of a region", _sample(spent), 20, "us", 1.0),
        compare("memory", "recompute of a region",
                _sample(_extra(costly["checkpoint"], costly["plain"])),
                _sample(costly["forward"].minima), "forward", "ms", 0.95)]


def _solver(measurement):
    solver = _run(measurement, "solver")["planner"]
    return [against("memory", "planner 100 stages 500 slots", _sample(solver.minima), 2000, "ms",
                    1.0)]


PARTS = {"bert-base": _bert, "encoder": _encoder, "resnet50": _resnet, "residual-1000": _residual,
         "region": _overhead, "planner": _solver}


def run(measurement, only):
    """Rows of a part are measured together, if its name is asked for, or "activation"."""
    rows = []
    for name, part in PARTS.items():
        if only.search(name) or only.search("activation"):
            rows += part(measurement)
    return rows
