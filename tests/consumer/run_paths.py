"""Checks that installed files find the libraries that they need: run_paths.py PREFIX

Each library that a program or shared library needs itself lies in one of the folders that the file names (RUNPATH is
not inherited), or in a folder of the distribution's. What a toolkit, LD_LIBRARY_PATH or the cache of the dynamic linker
would add counts for nothing: another machine has other ones.
"""

import pathlib
import re
import subprocess
import sys

DISTRIBUTION = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def dynamic_section(path):
    """The names that a file needs and the folders that it names; none for what is no such file."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return [], []
    text = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    folders = [folder.replace("$ORIGIN", str(path.parent))
               for found in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text) for folder in found.split(":")]
    return needed, [pathlib.Path(folder) for folder in folders if folder]


def distribution_folders():
    """Those of the linker's own, with the folders for one architecture in them."""
    roots = [pathlib.Path(root) for root in DISTRIBUTION if pathlib.Path(root).is_dir()]
    return roots + [folder for root in roots for folder in root.glob("*-linux-gnu*")]


def missing(path, distribution):
    needed, folders = dynamic_section(path)
    return [(name, folders) for name in needed
            if not any((folder / name).exists() for folder in folders + distribution)]


def main():
    prefix = pathlib.Path(sys.argv[1])
    distribution = distribution_folders()
    files = [path for path in sorted(prefix.rglob("*"))
             if path.is_file() and not path.is_symlink() and (path.stat().st_mode & 0o111 or ".so" in path.name)]
    seen, wrong = 0, 0
    for path in files:
        seen += bool(dynamic_section(path)[0])
        for name, folders in missing(path, distribution):
            wrong += 1
            print(f"{path.relative_to(prefix)} needs {name}, which lies neither in a folder of the distribution nor in "
                  f"its own: {':'.join(map(str, folders)) or 'none'}")
    print(f"{seen} programs and libraries, {wrong} that they would not find")
    sys.exit(wrong > 0 or seen == 0)


main()
