"""Finds the folder of tests of a library, for scripts/test --only: test_folders.py NAME

Prints the folder below tests/. NAME is a library, as its target is called or by its folder, or a folder of tests. Exit code 2: it
is none; the message lists what there is."""

import sys

from sources import ROOT, read_libraries

TESTS = ROOT / "tests"


def has_tests(folder):
    return (folder / "CMakeLists.txt").is_file()


def folders():
    """All folders of tests, without the projects of tests/consumer/."""
    found = [file.parent.relative_to(TESTS).as_posix() for pattern in ("*", "*/*") for file in TESTS.glob(f"{pattern}/CMakeLists.txt")]
    return sorted(name for name in found if not name.startswith("consumer/"))


def tests_of(library):
    """The nearest folder that mirrors the library's own: tests of checkpointing/snapshot/ may be in tests/checkpointing/."""
    parts = library.folder.relative_to(ROOT).parts
    for last in range(len(parts), 0, -1):
        for first in range(last):
            name = "/".join(parts[first:last])
            if has_tests(TESTS / name):
                return name
    return None


def main(wanted):
    named = folders()
    libraries = {name: tests_of(library) for library in read_libraries() for name in (library.target, library.name)}
    of_last_word = [name for name in named if name.split("/")[-1] == wanted]
    found = wanted if wanted in named else libraries.get(wanted) or (of_last_word[0] if len(of_last_word) == 1 else None)
    if found is None:
        names = sorted({*named, *(name for name, folder in libraries.items() if folder)})
        print(f"lockstep: --only {wanted}: no library or folder of tests; there are {', '.join(names)}", file=sys.stderr)
        return 2
    print(found)
    return 0


sys.exit(main(sys.argv[1].strip("/").removeprefix("tests/")))
