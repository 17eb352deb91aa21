"""The list of breaks of the library, what it has to cover, and the page that shows it."""

import hashlib
import json
import pathlib
import re
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIST = ROOT / "tests" / "mutations"
RESULTS = LIST / "results.json"
TABLE = LIST / "table.md"
NOT_THE_LIBRARY = ("tests/", "docs/", "examples/", "benchmarks/", "scripts/", "cmake/")
TEST = re.compile(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.M)

INTRODUCTION = """# What each test catches

A test that cannot fail proves nothing. For each test of {suites},
and for each test that {pages} name, `tests/mutations/*.toml` has a break: one small change of one source of the
library, a mistake that somebody could make, under which the test must fail. `scripts/mutations` makes the breaks one after the
other, builds, runs the tests and puts the source back; the ctest entry `mutations.table` looks whether the list is whole and
fits the sources. `scripts/mutations --table` writes this page. {run} of {all} breaks have been run in the form in which they
stand there; the last column says what was seen: the test fails, or ends the program, or hangs and is cut.

"""


class Break:
    """One entry of the list."""

    def __init__(self, entry, origin):
        self.id = entry["id"]
        self.sentence = entry["breaks"]
        self.file = entry["file"]
        self.old = entry["old"]
        self.new = entry["new"]
        self.is_expression = entry.get("expression", False)  # both texts are, of one type
        self.tests = entry["tests"]  # ctest entry, or program of unit tests -> names
        self.origin = origin

    def digest(self):
        text = "\0".join((self.file, self.old, self.new))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def pairs(self):
        return [(program, name) for program, names in self.tests.items() for name in names]


def read_list():
    breaks, exceptions, suites, pages = [], {}, [], []
    for path in sorted(LIST.glob("*.toml")):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        breaks += [Break(entry, path.name) for entry in document.get("mutation", [])]
        exceptions.update(document.get("exceptions", {}))
        suites += document.get("suites", [])
        pages += document.get("pages", [])
    return breaks, exceptions, suites, pages


def tracked(*patterns):
    """Names of files, as git knows them; where there is no repository, all that are there."""
    if not (ROOT / ".git").exists():
        return [str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.rglob(pattern)
                if not path.relative_to(ROOT).parts[0].startswith((".", "build"))]
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", *patterns], check=True,
                            capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def library_sources():
    """Name without folder -> paths."""
    sources = {}
    for name in tracked("*.cpp", "*.h", "*.cu", "*.cuh"):
        if not name.startswith(NOT_THE_LIBRARY):
            sources.setdefault(name.rsplit("/", 1)[-1], []).append(ROOT / name)
    return sources


def source_of(entry, sources):
    """The one source with the old text, and what is wrong where there is none."""
    paths = sources.get(entry.file, [])
    found = [path for path in paths if entry.old in path.read_text(encoding="utf-8")]
    if len(found) != 1:
        return None, f"{len(found)} of {len(paths)} files named {entry.file} have the old text"
    count = found[0].read_text(encoding="utf-8").count(entry.old)
    if count != 1:
        return None, f"the old text occurs {count} times in {entry.file}"
    if entry.old == entry.new:
        return None, "it changes nothing"
    return found[0], None


def promises(pages):
    """Names of tests, and maybe other words of their form, in these pages."""
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    return set(re.findall(r"`(\w+\.\w+)`", text))


def tests_in_sources():
    tests = set()
    for name in tracked("*_test.cpp"):
        text = (ROOT / name).read_text(encoding="utf-8")
        tests.update(f"{suite}.{test}" for suite, test in TEST.findall(text))
    return tests


def to_be_covered(suites, pages):
    tests = tests_in_sources()
    return {test for test in tests if test.split(".")[0] in suites} | (promises(pages) & tests)


def read_results():
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def result_of(entry, results):
    kept = results.get(entry.id, {})
    return kept.get("tests", {}) if kept.get("digest") == entry.digest() else {}


def render(breaks, exceptions, suites, pages, results):
    run = sum(1 for entry in breaks if result_of(entry, results))
    text = INTRODUCTION.format(suites=", ".join(f"`{suite}`" for suite in suites), run=run,
                               pages=", ".join(f"`{page}`" for page in pages), all=len(breaks))
    rows = {}
    for entry in breaks:
        result = result_of(entry, results)
        for program, name in entry.pairs():
            how = result.get(f"{program} {name}", "not yet run")
            rank = {"not yet run": 1, "PASSES": 2}.get(how, 0)
            rows.setdefault(name, []).append((rank, entry, how))
    for suite in sorted({name.split(".")[0] for name in rows}):
        text += f"## {suite}\n| test | break | its name | seen |\n|---|---|---|---|\n"
        for name in sorted(each for each in rows if each.split(".")[0] == suite):
            _, entry, how = min(rows[name], key=lambda row: row[0])
            text += f"| `{name.split('.')[1]}` | {entry.sentence} | `{entry.id}` | {how} |\n"
        text += "\n"
    if exceptions:
        text += "## Tests that no break can fail\n| test | why it is there |\n|---|---|\n"
        text += "".join(f"| `{name}` | {exceptions[name]} |\n" for name in sorted(exceptions))
        text += "\n"
    return text
