"""Reads the machine code of kernels from nvcc's objects: registers, memory of threads, widths of accesses."""

import collections
import dataclasses
import re
import subprocess

from cuda_tools import cuobjdump
from recording import short_names

INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
ACCESS = re.compile(r"(LDG|STG)\b(?:\.\w+)*")


@dataclasses.dataclass
class Code:
    """One kernel for one architecture."""
    kernel: str
    arch: str
    registers: int
    spill_bytes: int  # stack and local memory of a thread
    shared: int
    instructions: int = 0
    local_accesses: int = 0
    accesses: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # (direction, bits) -> number


def width_of(opcode):
    """Bits of a global access."""
    found = re.search(r"\.(128|64|U16|S16|U8|S8)\b", opcode)
    return int(found[1].lstrip("US")) if found else 32


def run(*arguments):
    return subprocess.run([cuobjdump(), *arguments], capture_output=True, text=True, check=True).stdout


def codes_of(path):
    """The Code of each kernel and architecture in an object."""
    found, arch, name = {}, None, None
    for line in run("-res-usage", path).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            name = match[1]
        elif match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            registers, stack, shared, local = map(int, match.groups())
            found[arch, name] = Code("", arch, registers, stack + local, shared)
    code = None
    for line in run("-sass", path).splitlines():
        if match := re.search(r"code for (\w+)", line):
            arch = match[1]
        elif match := re.search(r"Function : (\S+)", line):
            code = found[arch, match[1]]
        elif code and (match := INSTRUCTION.search(line)):
            opcode = match[1]
            code.instructions += opcode != "NOP"
            code.local_accesses += opcode.startswith(("LDL", "STL"))
            if ACCESS.match(opcode):
                code.accesses["ld" if opcode.startswith("LD") else "st", width_of(opcode)] += 1
    for (_, name), short in zip(found, short_names([name for _, name in found])):
        found[_, name].kernel = short
    return list(found.values())
