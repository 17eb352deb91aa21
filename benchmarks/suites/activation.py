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


def _plans(measurement, chain, percent):
    """The planner against plain: memory, time, and what was predicted."""
    samples = _run(measurement, chain, "plans", percent)
    plain, ours = samples["plain"], samples["planner"]
    return samples, [
        compare("memory", f"{chain} peak", _sample(ours.notes["peak"]),
                _sample(plain.notes["peak"]), "plain", "MB"),
        compare("memory", f"{chain} time", _sample(ours.minima), _sample(plain.minima), "plain",
                "ms"),
        compare("memory", f"{chain} peak to prediction", _sample(ours.notes["chain peak"]),
                _sample(ours.notes["predicted"]), "predicted", "MB", 0.97)]


def _bert(measurement):
    _, rows = _plans(measurement, "bert-base", 39)
    rows[0].target, rows[1].target = 2.5, 0.8
    jobs = {"ours": Job("solo", program(measurement.build, "activation", "encoder", "curve")),
            "python": Job("solo", peer("checkpoint_encoder.py", "encoder", 1, 4, 12))}
    samples = measurement.alternate(jobs, measure.each)
    for segments in (1, 4, 12):
        ours = samples["encoder", f"segments {segments}"]
        python = samples["encoder", f"python segments {segments}"]
        rows.append(compare("memory", f"encoder {segments} segments time", _sample(ours.minima),
                            _sample(python.minima), "python", "ms", 1.0))
        rows.append(compare("memory", f"encoder {segments} segments peak",
                            _sample(ours.notes["peak"]), _sample(python.notes["peak"]), "python",
                            "MB", 0.97))
    return rows


def _resnet(measurement):
    samples, rows = _plans(measurement, "resnet50", 60)
    plain = samples["plain"]
    rows.append(compare("memory", "resnet50 extra time", _sample(_extra(samples["planner"], plain)),
                        _sample(_extra(samples["uniform"], plain)), "best uniform", "ms", 1 / 0.9))
    return rows


def _residual(measurement):
    _, rows = _plans(measurement, "residual-1000", 16)
    rows[0].target, rows[1].target = 6.0, 1 / 1.35
    return rows


def _overhead(measurement):
    rows = []
    job = Job("solo", program(measurement.build, "activation", "regions"))
    samples = measurement.alternate({"regions": job}, measure.each)
    tiny = {variant: sample for (name, variant), sample in samples.items() if name == "tiny region"}
    costly = {variant: sample for (name, variant), sample in samples.items()
              if name == "costly region"}
    calls = tiny["plain"].notes["calls"][0]
    spent = [(extra - forward) / calls for extra, forward
             in zip(_extra(tiny["checkpoint"], tiny["plain"]), tiny["forward"].minima)]
    rows.append(against("memory", "overhead of a region", _sample(spent), 20, "us", 1.0))
    rows.append(compare("memory", "recompute of a region", _sample(costly["forward"].minima),
                        _sample(_extra(costly["checkpoint"], costly["plain"])), "recompute", "ms"))
    solver = _run(measurement, "solver")["planner"]
    rows.append(against("memory", "planner 100 stages 500 slots", _sample(solver.minima), 2000,
                        "ms", 1.0))
    return rows


def run(measurement, only):
    """Rows of a part are measured together, if any of them is asked for."""
    rows = []
    for names, part in (("bert-base encoder", _bert), ("resnet50", _resnet),
                        ("residual-1000", _residual), ("overhead recompute planner", _overhead)):
        if any(only.search(name) for name in names.split()):
            rows += part(measurement)
    return rows
