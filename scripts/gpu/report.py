"""The report of a pack: one folder, whole after each step, also where the run is killed or the disk is full."""

import json
import os
import pathlib
import sys
import threading

OK, FAILED, CUT, SKIPPED = "ok", "failed", "cut", "skipped"
WORST = (FAILED, CUT, OK, SKIPPED)
RESERVE = 1 << 20
LONGEST_LOG = 2 << 20


class Step:
    def __init__(self, name, command, environment=None, seconds=600, skip="", inspect=None, late="failed"):
        """`skip`: why it is not run here. `inspect(step, text of its log)` after its end may add a reason. `late`: the state
        of one that does not end in its seconds."""
        self.name, self.command, self.environment = name, [str(word) for word in command], environment or {}
        self.limit, self.skip, self.inspect, self.late = seconds, skip, inspect, late
        self.state, self.reason, self.seconds, self.log = CUT, "the run ended before it began", 0.0, ""

    def as_json(self):
        return {"name": self.name, "state": self.state, "reason": self.reason, "seconds": round(self.seconds, 1),
                "log": self.log, "command": self.command, "environment": self.environment}


class Part:
    def __init__(self, name, minutes, steps, alone=False):
        """`alone`: its steps run one after the other."""
        self.name, self.minutes, self.steps, self.alone = name, minutes, steps, alone

    @property
    def state(self):
        states = [step.state for step in self.steps]
        return next((state for state in WORST if state in states), SKIPPED)

    @property
    def reason(self):
        """Why it is not ok."""
        reasons = [step.reason for step in self.steps if step.state == self.state and step.reason]
        return "" if self.state == OK else "; ".join(dict.fromkeys(reasons))

    @property
    def seconds(self):
        return sum(step.seconds for step in self.steps)

    def counts(self):
        states = [step.state for step in self.steps]
        return ", ".join(f"{states.count(state)} {state}" for state in (OK, FAILED, CUT, SKIPPED) if state in states) or "none"

    def as_json(self):
        return {"name": self.name, "state": self.state, "reason": self.reason, "seconds": round(self.seconds, 1),
                "limit_minutes": round(self.minutes, 2), "steps": [step.as_json() for step in self.steps]}


def _cell(text, longest=160):
    text = " ".join(str(text).split()).replace("|", "/")
    return text if len(text) <= longest else text[:longest - 3] + "..."


def _table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _number(value):
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


class Report:
    """`folder` is made. `facts` has what is said of pack, versions and machine, {name: text}."""

    def __init__(self, folder, facts):
        self.folder, self.facts, self.parts, self.rows = pathlib.Path(folder), facts, [], []
        self._writing = threading.Lock()
        (self.folder / "logs").mkdir(parents=True)
        self._reserve()

    def log_of(self, step):
        step.log = f"logs/{''.join(c if c.isalnum() or c in '.-' else '-' for c in step.name)}.log"
        return self.folder / step.log

    def as_json(self):
        return {"facts": self.facts, "parts": [part.as_json() for part in self.parts], "rows": self.rows}

    def summary(self):
        return _table(["part", "state", "steps", "time", "why"],
                      [[part.name, part.state, part.counts(), f"{part.seconds:.0f} s", part.reason] for part in self.parts])

    def as_markdown(self):
        steps = [[step.name, step.state, f"{step.seconds:.1f} s", step.reason, step.log]
                 for part in self.parts for step in part.steps]
        text = (f"# Tests and measurements of a pack\n{_table(['what', ''], list(self.facts.items()))}\n\n"
                f"## Summary\n{self.summary()}\n\n## Steps\n{_table(['step', 'state', 'time', 'why', 'log'], steps)}\n")
        if self.rows:
            rows = [[row["suite"], row["name"], _number(row["ours"]), row["peer_name"], row["remark"] or _number(row["peer"]),
                     row["unit"], _number(row["ratio"])] for row in self.rows]
            text += f"\n## Measured\n{_table(['suite', 'row', 'ours', 'peer', 'peer takes', 'unit', 'ratio'], rows)}\n"
        return text

    def write(self):
        """From any thread. Never fails: where the disk is full, what was kept for this is given up, and long logs are shortened."""
        with self._writing:
            for attempt in (self._put, self._make_room_and_put):
                try:
                    attempt()
                    return
                except OSError as error:
                    problem = error
        print(f"the report could not be written to {self.folder}: {problem}\n{self.summary()}", file=sys.stderr, flush=True)

    def _put(self):
        for name, text in (("report.json", json.dumps(self.as_json(), indent=1)), ("report.md", self.as_markdown())):
            part = self.folder / (name + ".part")
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.folder / name)

    def _make_room_and_put(self):
        (self.folder / "reserve").unlink(missing_ok=True)
        for log in (self.folder / "logs").iterdir():
            shorten(log, 64 << 10)
        self._put()
        self._reserve()

    def _reserve(self):
        try:
            with open(self.folder / "reserve", "wb") as file:
                file.write(bytes(RESERVE))
        except OSError:
            (self.folder / "reserve").unlink(missing_ok=True)

    def close(self):
        (self.folder / "reserve").unlink(missing_ok=True)
        self.write()


def shorten(log, longest=LONGEST_LOG):
    """Keeps the end of a log, in its place."""
    try:
        size = log.stat().st_size
        if size > longest:
            with open(log, "r+b") as file:
                file.seek(size - longest)
                end = file.read()
                file.seek(0)
                file.write(b"(shortened)\n" + end[12:])
                file.truncate()
    except OSError:
        pass
