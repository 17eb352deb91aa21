"""The documentation as a site: site_tests.py REPOSITORY [faults]

scripts/docs builds it; dead links and what Doxygen warns of end that. Then looks whether its search finds each type and option of the
public headers, whether options are shown as setters, and whether a page loads anything from another host. With `faults`: whether faults
planted in a small repository end scripts/docs."""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))

from sources import read_libraries  # noqa: E402

OPTION = re.compile(r"((?:^ *///.*\n)*)^ *(?:TORCH_ARG|LOCKSTEP_OPTIMIZER_ARG)\(.+, (\w+)\)(?:\s*=\s*([^;]*))?;", re.M)
# What people search for, and a page that must be among the results.
SEARCHES = {
    "EarlyStoppingOptions": "api/runtime/early_stopping", "early stopping": "api/runtime/early_stopping",
    "validate_every": "api/runtime/train_epochs", "TrainerOptions": "api/runtime/trainer_options",
    "accumulate": "api/runtime/trainer_options", "TrainerOptions::accumulate": "api/runtime/trainer_options",
    "all_gather": "api/collectives/communicator", "no_decay": "api/amp/optimizers", "group": "api/amp/optimizers",
    "mixup": "docs/data", "onnx": "docs/python-models", "loss scale overflow": "docs/precision", "sbatch": "docs/slurm",
    "DistributedDataParallel": "docs/from-ddp", "running": "docs/first-hour",
}
LOADED = re.compile(r"<(?:script|link|img|iframe|source|object|embed|video)\b[^>]*?\s(?:src|href|data)=\"([^\"]*)\"", re.S)
wrong = []


def check(holds, complaint):
    if not holds:
        wrong.append(complaint)


class Search:
    """What the browser finds with the index that the site has, by the rules of Sphinx's searchtools.js."""

    def __init__(self, site):
        from snowballstemmer import stemmer  # Sphinx brings it

        text = (site / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text[text.index("(") + 1:text.rindex(")")])
        self.stem = stemmer("english").stemWord
        self.pages = index["docnames"]
        self.names = [(f"{prefix}.{name}".lstrip("."), self.pages[page])
                      for prefix, entries in index["objects"].items() for page, _, _, _, name in entries]
        self.titles = dict(zip(self.pages, index["titles"]))
        self.headings = [(title.lower(), self.pages[page]) for title, places in index["alltitles"].items() for page, _ in places]
        self.terms = {}
        for words in (index["terms"], index["titleterms"]):
            for word, pages in words.items():
                self.terms.setdefault(word, set()).update(pages if isinstance(pages, list) else [pages])

    def pages_with(self, word):
        stem = self.stem(word)
        terms = [stem] if stem in self.terms else [term for term in self.terms if len(stem) > 2 and stem in term]
        return {self.pages[page] for term in terms for page in self.terms[term]}

    def find(self, query):
        query = query.lower()
        words = re.findall(r"\w+", query)
        named = {page for name, page in self.names if all(word in f"{name} {self.titles[page]}".lower() for word in words)}
        headed = {page for heading, page in self.headings if query in heading and len(query) >= len(heading) / 2}
        return named | headed | set.intersection(*map(self.pages_with, words))

    def everything(self):
        return {page for _, page in self.names + self.headings} | {self.pages[page] for pages in self.terms.values() for page in pages}


def plain(text):
    """The words of HTML or of a comment, without marks."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).replace("`", "").split())


def check_header(site, search, page, source):
    text = (site / f"{page}.html").read_text(encoding="utf-8")
    shown = re.findall(r"<dt class=\"sig[^>]*>(.*?)</dt>\s*<dd>(.*?)(?=<dt|</dl>)", text, re.S)
    for _, space, name, definition in source.declarations():
        if name and definition and "detail" not in space.split("::"):
            full = f"{space}::{name}".removeprefix("::")
            check((full, page) in search.names, f"{source.name}: {full} has no entry in the search")
            check(page in search.find(name), f"{source.name}: a search for {name} does not find {page}")
    for comment, name, default in OPTION.findall(source.text):
        check(page in search.find(name), f"{source.name}: a search for the option {name} does not find {page}")
        places = [plain(body) for signature, body in shown if re.search(rf"\w+ ?& ?{name}\( ?const .* ?& ?value ?\)", plain(signature))]
        first = plain(html.escape(comment.strip().partition("\n")[0].strip(" /")))
        check(any(first in body and f"Default: {' '.join(default.split())}" in body for body in places) or not default and places,
              f"{source.name}: {name} is not shown as a setter with its comment and default {default!r}: {places}")


def check_page(site, path):
    text = path.read_text(encoding="utf-8")
    for address in LOADED.findall(text):
        check(not re.match(r"(https?:)?//", address), f"{path.name} loads {address}")
    for address in set(re.findall(r"\s(?:href|src)=\"([^\"#?]+)", text)):
        place = path.parent / html.unescape(address)
        check(re.match(r"[a-z]+:|//", address) or place.exists(), f"{path.relative_to(site)} links to {address}, which is not there")
    check(text.count("<table") == len(re.findall(r"<div class=\"table-wrapper[^>]*>\s*<table", text)),
          f"{path.relative_to(site)}: a table that does not scroll in a box of its own")


def check_site(site):
    search = Search(site)
    headers = [(f"api/{library.include_as}/{source.path.stem}", source) for library in read_libraries()
               for source in library.sources if source.is_public]
    for page, source in headers:
        check_header(site, search, page, source)
    for query, page in SEARCHES.items():
        check(page in search.find(query), f"a search for {query!r} finds {sorted(search.find(query))}, not {page}")
    found = search.everything()
    check(not [page for page in found if page.startswith(("tests/", "benchmarks/"))], "a search finds tables of tests or benchmarks")
    check({"README", *(f"docs/{page.stem}" for page in ROOT.glob("docs/*.md"))} <= found, "a search does not find all guides")
    pages = [*site.rglob("*.html")]
    for path in pages:
        check_page(site, path)
    for path in site.rglob("*.css"):
        check(not re.search(r"url\(\s*[\"']?(https?:)?//|@import", path.read_text(encoding="utf-8")), f"{path.name} loads from a host")
    for path in site.rglob("*.js"):
        check(not re.search(r"(fetch|import|importScripts)\(\s*[\"'`]https?:", path.read_text(encoding="utf-8")),
              f"{path.name} loads from a host")
    print(f"{len(headers)} headers and {len(pages)} pages looked at")


def docs(repository):
    return subprocess.run([repository / "scripts/docs"], capture_output=True, text=True, check=False)


def check_faults(folder):
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / "docs/site", folder / "docs/site")
    shutil.copy(ROOT / "requirements-docs.txt", folder)
    (folder / "base").mkdir()
    (folder / "base/CMakeLists.txt").write_text("lockstep_add_library(base\n  PUBLIC_HEADERS work.h)\n", encoding="utf-8")
    header = "#pragma once\nnamespace lockstep {{\n/// What is done.{}\nvoid work(int count);\n}}  // namespace lockstep\n"
    for name in ("README", "CONTRIBUTING", "CHANGELOG", *(f"docs/{page.stem}" for page in ROOT.glob("docs/*.md"))):
        (folder / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")

    def expect(what, *words):
        ended = docs(folder)
        if ended.returncode == 3:
            return ended
        said = ended.stdout + ended.stderr
        check(ended.returncode == 1 and all(word in said for word in words), f"{what}: {ended.returncode}, {said}")
        return ended

    def plant(text):
        (folder / "base/work.h").write_text(header.format(text), encoding="utf-8")

    plant("\n/// @param counts of things")
    expect("a comment on a parameter that is not there", "work.h", "counts")
    plant("")
    (folder / "docs/data.md").write_text("# Data\n[a](dead.md) [b](ema.md#dead-heading) ![c](dead.svg)\n", encoding="utf-8")
    (folder / "docs/alone.md").write_text("# Alone\n", encoding="utf-8")
    return expect("dead links, and a page that the contents lack", "dead.md", "dead-heading", "dead.svg", "alone.md")


def main():
    with tempfile.TemporaryDirectory() as made:
        ended = docs(ROOT) if sys.argv[2:] != ["faults"] else check_faults(pathlib.Path(made))
    if ended.returncode == 3:
        print(f"skipped: {ended.stderr.splitlines()[0]}")
        sys.exit(77)
    if sys.argv[2:] != ["faults"]:
        check(ended.returncode == 0, f"scripts/docs failed: {ended.stdout}{ended.stderr}")
        if not wrong:
            check_site(ROOT / "build/site")
    print("\n".join(wrong) or "in order")
    sys.exit(bool(wrong))


main()
