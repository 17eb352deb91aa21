"""Copies the pages of the repository to a folder as mkdocs wants them: one folder, links inside it."""

import pathlib
import re
import shutil
import sys

root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
shutil.rmtree(out, ignore_errors=True)
out.mkdir(parents=True)
copied = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}


def target_in_site(source, link):
    """The link from a page of the site; a file outside of docs/ is copied to files/."""
    path, hash_mark, anchor = link.partition("#")
    if not path or "://" in path:
        return link
    file = (source.parent / path).resolve().relative_to(root.resolve()).as_posix()
    if file in copied:
        return copied[file] + hash_mark + anchor
    if file.startswith("docs/"):
        return file[len("docs/"):] + hash_mark + anchor
    place = out / "files" / file
    place.parent.mkdir(parents=True, exist_ok=True)
    if (root / file).is_file():
        shutil.copy(root / file, str(place) + ".txt")
        return f"files/{file}.txt"
    return "index.md"


def page(source, name):
    text = source.read_text(encoding="utf-8")
    blocks = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)  # links are in the prose only
    for number in range(0, len(blocks), 2):
        blocks[number] = re.sub(r"(\]\()([^)\s]+)(\))",
                                lambda m: m[1] + target_in_site(source, m[2]) + m[3],
                                blocks[number])
    (out / name).write_text("".join(blocks), encoding="utf-8")


for document in sorted((root / "docs").iterdir()):
    if document.suffix == ".md":
        page(document, document.name)
    elif document.suffix == ".svg":
        shutil.copy(document, out)
for document, name in copied.items():
    page(root / document, name)
(out / "headers.md").write_text(
    "# Public headers\nThe headers that are installed, as "
    '<a href="../api/index.html">pages made by Doxygen</a>.\n', encoding="utf-8")
