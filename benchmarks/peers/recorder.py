"""The Python side of recorder.h: one JSON line for each measured series."""

import json
import os
import pathlib
import sys
import time


class Series:
    """The repetitions of one measurement, as times of the clock that all processes share."""

    def __init__(self, name, variant, **notes):
        self._record = {"name": name, "variant": variant, "begin": [], "end": [], **notes}

    def begin(self):
        self.begin_at(time.clock_gettime(time.CLOCK_MONOTONIC))

    def begin_at(self, seconds):
        self._record["begin"].append(seconds)

    def end(self):
        self._record["end"].append(time.clock_gettime(time.CLOCK_MONOTONIC))

    def note(self, key, value):
        self._record[key] = value

    def write(self):
        line = json.dumps(self._record) + "\n"
        folder = os.environ.get("LOCKSTEP_BENCH_RECORDS")
        if folder is None:
            sys.stdout.write(line)
            return
        with open(pathlib.Path(folder) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(line)
