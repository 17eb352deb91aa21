"""Fails when docs/troubleshooting.md quotes a message that the sources do not have."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
libraries = ["amp", "bindings", "checkpointing", "collectives", "inputs", "launcher", "runtime"]
sources = [path for library in libraries for kind in ("*.h", "*.cpp", "*.cu")
           for path in (root / library).rglob(kind)]
# Adjacent literals are one text; what lies between "…" and << or , is another.
text = "\n".join(re.sub(r'"\s*\n?\s*"', "", path.read_text(encoding="utf-8")) for path in sources)
missing, quoted = [], 0
for line in (root / "docs/troubleshooting.md").read_text(encoding="utf-8").splitlines():
    cells = line.split("|")
    if len(cells) < 4 or "(LibTorch)" in cells[1]:
        continue
    for message in re.findall(r"`([^`]+)`", cells[1]):
        if " " in message and not message.startswith(("mpirun", "lockstep run", "if (")):
            quoted += 1
            if message not in text:
                missing.append(message)
print("\n".join(missing) or f"{quoted} messages are those of the sources")
sys.exit(bool(missing) or quoted < 50)
