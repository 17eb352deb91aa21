"""How near the two cores are to each other and how fast they compute, looked at before each run. The cores of a virtual
machine move, and so do times that depend on where they are."""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, field

from . import launch

PROGRAM = "cores"


def spread(values):
    """The 10 %, 50 % and 90 % quantiles."""
    if len(values) < 2:
        return values * 3
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return [tenths[0], tenths[4], tenths[8]]


@dataclass
class Cores:
    """The looks at the cores during one suite."""

    line_ns: list = field(default_factory=list)
    rates: list = field(default_factory=list)  # of the slower core

    def look(self, build):
        """Without effect where the program is not built."""
        program = build / "benchmarks" / PROGRAM
        if not program.exists():
            return
        done = subprocess.run([program, *map(str, launch.cores())], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"warning: {PROGRAM}: {done.stderr.strip()}", file=sys.stderr)
            return
        found = json.loads(done.stdout)
        self.line_ns.append(found["line_ns"])
        self.rates.append(min(found["rates"]))

    def as_text(self):
        """Empty without a look."""
        if not self.rates:
            return ""
        near, usual, far = spread(self.line_ns)
        slow, middle, fast = spread([rate / max(self.rates) for rate in self.rates])
        return (f"{len(self.rates)} looks at the cores (10, 50, 90 %): {near:.0f}, {usual:.0f}, {far:.0f} ns apart; "
                f"the slower one at {slow:.2f}, {middle:.2f}, {fast:.2f} of the best rate")
