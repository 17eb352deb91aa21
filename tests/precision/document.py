"""Compares docs/precision.md with what the programs and the tests say: its tables of casts, and
that every test exists that it or the tables of facts and traps in TESTS/facts.md name.

  document.py DOCUMENT CAST_TABLE TESTS [--write]     --write puts the tables in
"""

import pathlib
import re
import subprocess
import sys

document, program, tests = sys.argv[1:4]
path = pathlib.Path(document)
text = path.read_text(encoding="utf-8")
begin, end = "<!-- made by tests/precision/cast_table.cpp -->\n", "<!-- end -->"
tables = subprocess.run([program], check=True, capture_output=True, text=True).stdout
head, rest = text.split(begin)
old, tail = rest.split(end)
if "--write" in sys.argv:
    path.write_text(head + begin + tables + end + tail, encoding="utf-8")
    sys.exit(0)
wrong = []
if old != tables:
    wrong.append("the tables of casts are out of date: document.py --write puts these in\n" + tables)
sources = "\n".join(p.read_text(encoding="utf-8") for p in pathlib.Path(tests).rglob("*_test.cpp"))
found = re.findall(r"TEST(?:_F)?\(\s*(\w+),\s*(\w+)\)", sources)
names = {f"{suite}.{name}" for suite, name in found}
suites = {suite for suite, _ in found}
facts = (pathlib.Path(tests) / "facts.md").read_text(encoding="utf-8")
mentioned = {m for m in re.findall(r"`(\w+\.\w+)`", text + facts) if m.split(".")[0] in suites}
wrong += [f"names the test {name}, which is not there" for name in sorted(mentioned - names)]
for kind, count in (("fact", 35), ("trap", 22)):
    rows = re.search(rf"^\| {kind} \| test \|\n\|---\|---\|\n((?:\|.*\n)*)", facts, re.M)[1].splitlines()
    if len(rows) < count:
        wrong.append(f"the table of {kind}s has {len(rows)} rows, not {count}")
    wrong += [f"names no test that is there: {row}" for row in rows
              if not names & set(re.findall(r"`(\w+\.\w+)`", row.rsplit("|", 2)[1]))]
    wrong += [f"names the test {name}, which is not there" for row in rows
              for name in set(re.findall(r"`(\w+\.\w+)`", row.rsplit("|", 2)[1])) - names]
print("\n".join(wrong) or f"{len(mentioned)} tests are named, the tables are up to date")
sys.exit(bool(wrong))
