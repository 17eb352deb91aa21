"""The page of a processor family, beside its stored ratios: a section for each suite, with when and where it was measured."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re

from .launch import VECTORS
from .rows import as_markdown

HEAD = """# Measured rows: {family}
`./scripts/bench --store` writes this page. [What the rows mean](../README.md).
"""
INTERESTING = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "f16c")


def _processor():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")

    def value(key):
        found = re.search(rf"^{key}\s*: (.*)$", text, re.MULTILINE)
        return found.group(1) if found else "unknown"

    flags = [flag for flag in INTERESTING if flag in value("flags").split()]
    return (f"{value('model name')} (family {value('cpu family')}, model {value('model')}; "
            f"{', '.join(flags)}), {os.cpu_count()} cores")


def machine():
    """When and where this measurement was made, in a sentence."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    torch = importlib.metadata.version("torch")
    limited = f", limited to {os.environ[VECTORS]}" if VECTORS in os.environ else ""
    return (f"Measured {datetime.date.today()} on {_processor()}{limited}, {memory:.0f} GiB, "
            f"Linux {platform.release()}, LibTorch {torch}.")


def _sections(path):
    """{suite: text below its heading} of the page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return dict(part.split("\n", 1) for part in re.split(r"^## ", text, flags=re.M)[1:])


def _with_rows(section, table, remark):
    """The section with the rows of `table` in place of those with its names, and a remark that says so."""
    old, new = ([line for line in text.splitlines() if line.startswith("| ")] for text in (section, table))

    def names(line):
        cells = line.split(" | ")
        return cells[1], cells[3]  # row, peer

    fresh = {names(line): line for line in new[1:]}
    kept = [fresh.pop(names(line), line) for line in old[1:]]
    above = section.split("\n| ", 1)[0].rstrip("\n")
    return "\n".join([above, remark, "", new[0], table.splitlines()[1], *kept, *fresh.values()])


def update(path, rows, remarks=None, only=None):
    """Replaces the sections of the suites that `rows` are of, on the page `path`. `remarks`: {suite: a line of its own}.
    With `only`, a pattern that chose rows, other rows of the section stay, and a line names the pattern."""
    sections = _sections(path)
    for suite in dict.fromkeys(row.suite for row in rows):
        table = as_markdown([row for row in rows if row.suite == suite])
        said = (remarks or {}).get(suite)
        if only and suite in sections:
            of = f"- Rows that match `{only}`: {machine()}" + (f" {said}" if said else "")
            sections[suite] = _with_rows(sections[suite], table, of)
        else:
            sections[suite] = "\n".join([machine(), *([f"- {said}"] if said else []), "", table])
    text = "\n".join(f"\n## {suite}\n{section.strip()}" for suite, section in sections.items())
    path.write_text(HEAD.format(family=path.stem) + text + "\n", encoding="utf-8")
