"""Puts a table, and where it was measured, between the markers of a Markdown document."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re

from .launch import VECTORS
from .rows import as_markdown

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
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


def update(path, rows, remarks=()):
    """Replaces what stands between the markers; the rest of the document is kept. `remarks` are lines of their own."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    lines = "".join(f"- {remark}\n" for remark in remarks) + ("\n" if remarks else "")
    path.write_text(f"{before}{BEGIN}\n{machine()}\n\n{lines}{as_markdown(rows)}\n{END}{after}", encoding="utf-8")
