"""Compiles dropped.cpp: a warning at each line that drops what must be kept, and at no other line.

  python3 dropped.py SOURCE OBJECT-FILE COMPILER ARGUMENT...
"""

import re
import subprocess
import sys

source, compiler = sys.argv[1], sys.argv[2:]
lines = open(source).read().splitlines()
wanted = {number for number, line in enumerate(lines, 1) if re.search(r"// dropped$", line)}
made = subprocess.run([*compiler, "-fsyntax-only", "-Wunused-result", source],
                      capture_output=True, text=True)
if made.returncode != 0:
    sys.exit(made.stderr)
found = {int(number) for number in re.findall(
    re.escape(source) + r":(\d+):\d+: warning: [^\n]*nodiscard", made.stderr)}
silent, surplus = sorted(wanted - found), sorted(found - wanted)
for number in silent:
    print(f"no warning: {source}:{number}: {lines[number - 1].strip()}")
for number in surplus:
    print(f"unexpected warning: {source}:{number}: {lines[number - 1].strip()}")
print(f"{len(found)} of {len(wanted)} dropped results are warned of")
sys.exit(1 if silent or surplus or not wanted else 0)
