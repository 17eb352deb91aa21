"""Writes each block of C++ of a document to OUT/block_N.cpp and prints the names of the files.

  code_blocks.py DOCUMENT OUT [LANGUAGE]     default cpp; blocks in "c++" need a library that lockstep does not
"""

import pathlib
import re
import sys

document, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
language = re.escape(sys.argv[3] if len(sys.argv) > 3 else "cpp")
blocks = re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.M | re.S)
for number, block in enumerate(blocks, start=1):
    path = out / f"block_{number}.cpp"
    if not path.exists() or path.read_text(encoding="utf-8") != block:
        path.write_text(block, encoding="utf-8")
    print(path.name)
if not blocks:
    sys.exit(f"{document} has no block of C++")
