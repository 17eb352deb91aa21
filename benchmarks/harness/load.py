"""How much processor time others took while something of ours ran."""

import os
import resource
import time

TICKS = os.sysconf("SC_CLK_TCK")


def _busy_seconds():
    """Time that all processes of the machine have spent; interrupts left out."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system = (int(field) for field in stat.readline().split()[1:4])
    return (user + nice + system) / TICKS


def _own_seconds():
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class ForeignLoad:
    """`with ForeignLoad() as load:` then `load.cores`: the mean number of cores used by others.

    Children must have been waited for inside the block.
    """

    def __enter__(self):
        self._start = (time.monotonic(), _busy_seconds(), _own_seconds())
        return self

    def __exit__(self, *_):
        start, busy, own = self._start
        spent = (_busy_seconds() - busy) - (_own_seconds() - own)
        self.cores = max(0.0, spent / max(1e-3, time.monotonic() - start))
