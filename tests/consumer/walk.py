"""Types what a page says into empty folders, against an installed lockstep.

  walk.py PAGE PREFIX FOLDER [--with FILE]... [--without LANGUAGE]...

A block in Python, C++, C, Fortran or CMake is a file: model.py, program.cpp, program.c, program.f90 or
CMakeLists.txt. A block in sh is typed below them, with PREFIX for /where/lockstep/is/installed; each line of a
text block after it must be a line of what was printed, where "…" stands for anything. After commands that have
built a program the next file begins a new folder, which takes over the *.pt2 of the one before. Files of --with
are put into the first. Blocks that no sh block follows are left alone.
"""

import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys

FILES = {"python": "model.py", "cpp": "program.cpp", "c": "program.c", "fortran": "program.f90",
         "cmake": "CMakeLists.txt"}
PLACE = "/where/lockstep/is/installed"


class Walk:
    def __init__(self, arguments):
        self.root, self.prefix, self.without = arguments.folder, arguments.prefix, arguments.without
        self.number, self.built, self.printed, self.commands = 0, True, "", 0
        self.folder = None
        self.taken = arguments.given
        self.files = {}
        self.environment = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                            "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "CUDA_VISIBLE_DEVICES": "", **os.environ}
        python = str(pathlib.Path(sys.executable).parent)  # the environment of this Python, as if activated
        self.environment["PATH"] = f"{python}:{self.environment['PATH']}"

    def write(self, language, text):
        if self.built and not self.files:
            self.number += 1
            self.folder = self.root / str(self.number)
            self.folder.mkdir(parents=True)
            for path in self.taken:
                shutil.copy(path, self.folder)
            self.built = False
        self.files[language] = text

    def type(self, text):
        languages, self.files = self.files, {}
        self.printed = ""
        if set(languages) & set(self.without):
            print(f"left out: {', '.join(languages)}")
            return
        for language, content in languages.items():
            (self.folder / FILES[language]).write_text(content, encoding="utf-8")
        for line in text.replace(PLACE, str(self.prefix)).strip().splitlines():
            print(f"{self.folder.name}$ {line}", flush=True)
            done = subprocess.run(line, shell=True, cwd=self.folder, env=self.environment, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(done.stdout, flush=True)
            if done.returncode != 0:
                sys.exit(f"walk.py: `{line}` ended with {done.returncode}")
            self.printed += done.stdout
            self.commands += 1
        self.taken = sorted(self.folder.glob("*.pt2"))
        self.built = "cmake" in languages

    def expect(self, text):
        for line in text.strip().splitlines() if self.printed else []:
            form = line.replace("[", "[[]").replace("…", "*")
            if not any(fnmatch.fnmatchcase(printed.strip(), form) for printed in self.printed.splitlines()):
                sys.exit(f"walk.py: no printed line is `{line}`")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--with", dest="given", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--without", action="append", choices=FILES, default=[])
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    walk = Walk(arguments)
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", arguments.page.read_text(encoding="utf-8"),
                                     re.M | re.S):
        if language in FILES:
            walk.write(language, text)
        elif language == "sh":
            walk.type(text)
        elif language == "text":
            walk.expect(text)
    if not walk.commands:
        sys.exit(f"walk.py: {arguments.page} has no commands")


main()
