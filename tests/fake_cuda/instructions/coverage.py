"""Which opcodes and modifiers of the machine's table (machine/opcodes.cpp) no kernel of the tests has."""

import pathlib
import re

# Names of what is so anyway, which no listing has; and what nothing in torch 2.11's wheel uses.
NEVER_WRITTEN = {"F2I.S32", "F2I.F32", "I2F.S32", "I2F.F32", "FRND.F32", "ATOMG.U32", "RED.U32", "ATOMS.U32", "ATOM.U32",
                 *(f"{opcode}.32" for opcode in ("LDG", "LD", "LDS", "LDL", "STG", "ST", "STS", "STL", "LDC", "ULDC")),
                 *(f"{opcode}.{kind}" for opcode in ("STG", "ST", "STS", "STL") for kind in ("S8", "S16"))}
TABLE = pathlib.Path(__file__).resolve().parents[1] / "machine/opcodes.cpp"


def known():
    """The machine's opcodes with the modifiers that change what they do."""
    text = TABLE.read_text(encoding="utf-8")
    lists = dict(re.findall(r'#define (\w+) "([^"]*)"', text))
    found = {}
    for name, modifiers in re.findall(r'^\s*\{"(\w+)",\s*((?:"[^"]*"|\w+|\s)+),', text, re.M):
        words = []
        for quoted, macro in re.findall(r'"([^"]*)"|(\w+)', modifiers):
            words += (quoted or lists.get(macro, "")).split()
        found[name] = words
    return found


def untested(instructions):
    """Lines: an opcode that no kernel has, or its modifiers that none has. `instructions`: (opcode, modifiers)."""
    seen = {}
    for opcode, modifiers in instructions:
        seen.setdefault(opcode, set()).update(modifiers)
    for opcode, modifiers in known().items():
        if opcode not in seen:
            yield opcode
        else:
            missing = {f"{opcode}.{modifier}" for modifier in modifiers if modifier not in seen[opcode]}
            yield from sorted(missing - NEVER_WRITTEN)
