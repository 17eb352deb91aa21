#!/usr/bin/env python3
"""Functions of a CUDA library that LibTorch asks for and the fake one lacks, as functions that say so and abort.

  stubs.py --soname libcudart.so.13 --torch TORCH_FOLDER --out FILE [--pattern REGEX] OBJECT...

Python binds all symbols as it loads, so each must exist. FILE becomes C++ source; FILE with the ending .version
becomes the linker's version script: LibTorch asks for names like cudaMalloc@libcudart.so.13. With a pattern, the
library is one without versions (the driver, NCCL), whose symbols are those that match it.
"""

import argparse
import pathlib
import re
import subprocess

# What the fake libraries know of each other, and what C++ throws between them.
OWN = 'extern "C++" { fake_cuda::*; typeinfo*fake_cuda::*; vtable*fake_cuda::*; };'


def symbols(options, paths):
    text = subprocess.run(["nm", *options, *map(str, paths)], check=True, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in text.splitlines() if len(line.split()) > 1]


def wanted(torch, soname, pattern):
    """The library's functions that LibTorch's own libraries import."""
    libraries = sorted((torch / "lib").glob("*.so")) + sorted(torch.glob("_C*.so"))
    found = set()
    for symbol in symbols(["-D", "--undefined-only"], libraries):
        name, _, version = symbol.partition("@")
        if version == soname if not pattern else re.match(pattern, name) and not version:
            found.add(name)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--soname", required=True)
    parser.add_argument("--torch", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--pattern", default="")
    parser.add_argument("objects", nargs="+")
    given = parser.parse_args()
    have = set(symbols(["--defined-only", "--extern-only"], given.objects))
    missing = sorted(wanted(given.torch, given.soname, given.pattern) - have)
    lines = ["#include <cstdio>", "#include <cstdlib>", ""]
    for name in missing:
        lines += [f'extern "C" __attribute__((visibility("default"))) void {name}() {{',
                  f'  std::fprintf(stderr, "fake cuda: {name} is missing\\n");', "  std::abort();", "}"]
    given.out.write_text("\n".join(lines) + "\n")
    exported = "; ".join(sorted(name for name in have | set(missing) if re.match(r"(__)?(cu|nccl)", name)))
    given.out.with_suffix(".version").write_text(
        f"{'' if given.pattern else given.soname} {{\n  global: {exported};\n    {OWN}\n  local: *;\n}};\n")


if __name__ == "__main__":
    main()
