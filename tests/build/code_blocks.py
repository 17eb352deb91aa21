"""Writes each ```cpp, ```c and ```fortran block of a document to OUT/block_N.cpp, c_block_N.c and
fortran_block_N.f90, and prints the names of the files."""

import pathlib
import re
import sys

LANGUAGES = {"cpp": "block_{}.cpp", "c": "c_block_{}.c", "fortran": "fortran_block_{}.f90"}
document, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
out.mkdir(parents=True, exist_ok=True)
found = 0
for language, name in LANGUAGES.items():
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), re.M | re.S)
    found += len(blocks)
    for number, block in enumerate(blocks, start=1):
        path = out / name.format(number)
        if not path.exists() or path.read_text(encoding="utf-8") != block:
            path.write_text(block, encoding="utf-8")
        print(path.name)
if not found:
    sys.exit(f"{document} has no block of {', '.join(LANGUAGES)}")
