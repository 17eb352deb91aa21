"""Exits 0 if every `name==version` of a requirements file is installed in that very version."""

import importlib.metadata
import sys


def installed(requirement):
    name, _, version = requirement.partition("==")
    try:
        return importlib.metadata.version(name).split("+")[0] == version
    except importlib.metadata.PackageNotFoundError:
        return False


lines = [line.split("#")[0].strip() for line in open(sys.argv[1], encoding="utf-8")]
sys.exit(not all(installed(line) for line in lines if line))
