"""Fails when a document links to a file or heading, or tells to run a script or preset, that is not there, or to install PyPI's
package of lockstep's name, and when the README or the manual is too long."""

import json
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
presets = {p["name"] for p in json.loads((root / "CMakePresets.json").read_text())["testPresets"]}
documents = [*root.glob("*.md"), *(path for folder in ("docs", "tests", "benchmarks", "template")
                                    for path in root.glob(f"{folder}/**/*.md"))]
MOST_LINES = {"README.md": 140, "docs/performance.md": 150}
MOST_WORDS = 45_000  # of docs/
wrong = []


def complain(document, what):
    wrong.append(f"{document.relative_to(root)}: {what}")


def anchors(page):
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


def check_links(document, text):
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", prose):
        place = document.parent / target if target else document
        if "://" in target:
            continue
        if not place.exists():
            complain(document, f"links to {target}, which is not there")
        elif anchor and place.suffix == ".md" and anchor not in anchors(place):
            complain(document, f"links to {target}#{anchor}: no heading has this name")


def check_commands(document, text):
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        for script in re.findall(r"\./((?:scripts|\.ci)/\w+)", block):
            path = root / script
            if not path.is_file() or not path.stat().st_mode & 0o100:
                complain(document, f"runs ./{script}, which is not an executable file")
    for preset in re.findall(r"--preset[ =](\w+)", text):
        if preset not in presets:
            complain(document, f"names the preset {preset}, which is not there")


def check_installs(document, text):
    """PyPI's `lockstep` is another project: only files are installed."""
    for command in re.findall(r"\bpip3? +install\b([^\n`]*)", text):
        for word in re.split(r"#|&&|[;|]", command)[0].split():
            if re.fullmatch(r"""["']?lockstep(\[.*\])?([=<>~!].*)?["']?""", word):
                complain(document, f"`pip install {word}` would install another project of that name: name the file, ./lockstep-….whl")


for document in documents:
    text = document.read_text(encoding="utf-8")
    check_links(document, text)
    check_commands(document, text)
    check_installs(document, text)
for name, most in MOST_LINES.items():
    if (count := len((root / name).read_text(encoding="utf-8").splitlines())) > most:
        complain(root / name, f"{count} lines, of {most}")
if (words := sum(len(page.read_text(encoding="utf-8").split()) for page in root.glob("docs/**/*.md"))) > MOST_WORDS:
    complain(root / "docs", f"{words} words, of {MOST_WORDS}: say things once; lists of tests and measured rows lie beside them")
print("\n".join(wrong) or f"{len(documents)} documents are in order")
sys.exit(bool(wrong) or not documents)
