"""A step through the C interface and the Fortran module beside the same step in C++: one thread."""

from harness import measure
from harness.launch import Job, program
from harness.measure import Sample
from harness.rows import against, compare

PROGRAMS = ("c_step",)

STEPS = 20  # of a repetition
LIMIT_US = 5.0  # of what a step may cost more than in C++


def run(measurement, only):
    job = Job("solo", program(measurement.build, "c_step"))
    samples = measurement.alternate({"c, fortran and c++": job}, measure.each)
    step = {variant: Sample.of([seconds / STEPS for seconds in sample.minima])
            for (_, variant), sample in samples.items()}
    rows = []
    for variant in step.keys() - {"c++"}:
        more = Sample.of([max(ours - peer, 1e-9)
                          for ours, peer in zip(step[variant].minima, step["c++"].minima)])
        rows += [compare("c", f"{variant} step", step[variant], step["c++"], "c++", "us"),
                 against("c", f"{variant} step beyond c++", more, LIMIT_US, "us", 1.0)]
    return [row for row in sorted(rows, key=lambda row: row.name) if only.search(row.name)]
