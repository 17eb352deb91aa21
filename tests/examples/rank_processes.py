"""The ranks of a job that a test has started, seen from outside."""

import contextlib
import os
import pathlib


def ranks_of(launcher, program):
    """The processes of the ranks: those below the launcher that run the program."""
    below = [launcher]
    for process in below:
        with contextlib.suppress(OSError):  # the process has ended
            below += map(int, pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return [process for process in below if os.path.realpath(f"/proc/{process}/exe") == os.path.realpath(program)]
