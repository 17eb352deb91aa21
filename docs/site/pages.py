"""Lays out what Sphinx makes the site from: a copy of the repository, and a page for each public header, by way of Doxygen.

  pages.py FOLDER      writes FOLDER/pages, FOLDER/xml"""

import pathlib
import shutil
import subprocess
import sys

from header_page import header_page

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from sources import read_libraries  # noqa: E402

# Headers that a program includes through another one, and whose functions it calls.
WITH = {"amp/optimizers.h": ["amp/impl/grouped.h"]}


def copy_repository(pages):
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, pages)
        elif path.name != "runs" and not path.name.startswith((".", "build")):
            shutil.copytree(path, pages / path.name)


def run_doxygen(headers, out):
    filter_by = f"{sys.executable} -B {pathlib.Path(__file__).parent / 'setters.py'}"
    settings = [(ROOT / "docs/site/Doxyfile").read_text(encoding="utf-8"), f"INPUT = {' '.join(headers)}",
                f'INPUT_FILTER = "{filter_by}"', f"OUTPUT_DIRECTORY = {out}"]
    ended = subprocess.run(["doxygen", "-"], input="\n".join(settings), cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0 or ended.stderr:
        sys.exit(f"Doxygen complains:\n{ended.stderr}")


def write(page, title, text):
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f"{title}\n{'=' * len(title)}\n\n{text}\n", encoding="utf-8")


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    pages, xml = folder / "pages", folder / "xml"
    pages.mkdir(parents=True)
    copy_repository(pages)
    headers = {f"{library.include_as}/{name}": [f"{library.name}/{name}", *WITH.get(f"{library.name}/{name}", [])]
               for library in read_libraries() for name in library.named}
    run_doxygen(sum(headers.values(), []), folder)
    for include, shown in headers.items():
        code = f".. code-block:: cpp\n\n   #include <lockstep/{include}>\n\n"
        write(pages / "api" / include.replace(".h", ".rst"), include, code + header_page(xml, shown))
    for include_as in {include.rpartition("/")[0] for include in headers}:
        names = sorted(include.rpartition("/")[2] for include in headers if include.rpartition("/")[0] == include_as)
        write(pages / "api" / include_as / "index.rst", include_as,
              ".. toctree::\n\n" + "\n".join(f"   {name} <{name.removesuffix('.h')}>" for name in names))


main(pathlib.Path(sys.argv[1]))
