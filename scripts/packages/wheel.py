"""Makes the wheel file of a build: wheel.py BUILD-FOLDER FOLDER

The wheel has the installed tree as the Python package `lockstep`, which lies beside `torch` in site-packages, and a console
script `lockstep`. It brings Highway, xxHash and libsodium, which no Python package has; LibTorch, MPI and zlib are those of the machine.
Its name says what it fits: the minor version of torch, its CUDA, and the oldest C library that has all symbols.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODULE = '''"""lockstep trains LibTorch models on many ranks. This package has its headers, libraries and command."""

import os
import sys

prefix = os.path.dirname(os.path.abspath(__file__))


def main():
    program = os.path.join(prefix, "bin", "lockstep")
    os.execv(program, [program] + sys.argv[1:])
'''
# Of a manylinux tag, which is that of a C library, the newest symbols of the C++ library (auditwheel's policies).
CXX_OF_TAG = {17: 19, 24: 22, 27: 24, 31: 28, 34: 29, 35: 30, 39: 33}
USUAL = 28  # PyPI's torch is for C libraries from 2.28 on


def run(*command):
    return subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout


def install(build, tree):
    for component in ("lockstep", "relocated"):
        run("cmake", "--install", build, "--prefix", tree, "--component", component)


def licence_of(library):
    """The file in which the distribution says how this library may be passed on."""
    stem = re.match(r"lib(\w+)", library.name)[1]
    places = [path for path in (pathlib.Path("/usr/share/doc"), pathlib.Path("/usr/share/licenses")) if path.is_dir()]
    for folder in sorted(folder for place in places for folder in place.iterdir() if re.match(rf"(lib)?({stem}|highway)", folder.name)):
        for name in ("copyright", "LICENSE", "LICENSE-BSD3", "COPYING"):
            if (folder / name).is_file():
                return folder / name
    sys.exit(f"scripts/wheel: {library} goes into the wheel, but {', '.join(map(str, places))} have no licence of {stem}")


def bring(libraries, tree, facts):
    """Puts them beside lockstep's: a static one under its name, a shared one under that by which programs ask for it."""
    pc = tree / facts["libdir"] / "pkgconfig" / "lockstep.pc"
    # Programs that use a reader of images or tar files name its library themselves: it may not be there.
    text = pc.read_text(encoding="utf-8").replace(facts["readers"], "").replace(" -lz ", " -l:libz.so.1 ")
    for library in map(pathlib.Path, libraries):
        name = library.name
        if library.suffix != ".a":
            name = re.search(r"\(SONAME\).*\[(.*)\]", run("readelf", "-dW", library))[1]
            stem = re.match(r"lib(\w+)", name)[1]
            text = text.replace(f" -l{stem} ", f" -l:{name} -Wl,-rpath,${{libdir}} ")
        shutil.copy(library.resolve(), tree / facts["libdir"] / name)
        shutil.copy(licence_of(library), tree / facts["docdir"] / f"LICENSE.{name}")
    pc.write_text(text, encoding="utf-8")


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def versioned_symbols(tree, facts):
    """[(kind, version, symbol, file)] of the C and C++ libraries. Static libraries are linked together for that."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        archives = sorted((tree / facts["libdir"]).glob("*.a"))
        linked = pathlib.Path(folder) / "all.so"
        run(facts["compiler"], "-shared", "-o", linked, "-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive")
        files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink() and is_elf(path)]
        for path in [*files, linked]:
            where = "the static libraries" if path == linked else path.relative_to(tree).as_posix()
            for symbol, kind, version in re.findall(r" UND (\S+)@(GLIBC|GLIBCXX)_([\d.]+)", run("readelf", "--dyn-syms", "-W", path)):
                found.append((kind, tuple(map(int, version.split("."))), symbol, where))
    return found


def least_tag(symbols):
    """The least 2.N whose C and C++ libraries have all of them."""
    glibc = max((version[1] for kind, version, *_ in symbols if kind == "GLIBC"), default=0)
    cxx = max((version[2] for kind, version, *_ in symbols if kind == "GLIBCXX" and len(version) > 2), default=0)
    fit = [tag for tag, newest in CXX_OF_TAG.items() if newest >= cxx]
    if not fit:
        sys.exit(f"scripts/wheel: it needs GLIBCXX_3.4.{cxx}, which no manylinux tag has; use an older compiler")
    return max(glibc, min(fit))


def report(symbols, tag):
    usual_cxx = CXX_OF_TAG[max(tag for tag in CXX_OF_TAG if tag <= USUAL)]
    newer = {}
    for kind, version, symbol, where in symbols:
        if version > {"GLIBC": (2, USUAL), "GLIBCXX": (3, 4, usual_cxx)}[kind]:
            newer.setdefault((kind, version, symbol), set()).add(where)
    print(f"symbols that are newer than those of manylinux_2_{USUAL}: {len(newer) or 'none'}")
    for (kind, version, symbol), files in sorted(newer.items()):
        print(f"  {kind}_{'.'.join(map(str, version))}  {symbol}  of {', '.join(sorted(files))}")
    print(f"so the wheel is for manylinux_2_{tag} and newer")


def write(tree, facts, platform, folder):
    cuda = "cu" + facts["cuda"].replace(".", "") if facts["cuda"] else "cpu"
    version = f"{facts['version']}+torch{'.'.join(facts['libtorch'].split('.')[:2])}.{cuda}"
    info = f"lockstep-{version}.dist-info"
    tag = f"py3-none-{platform}"
    files = {f"lockstep/{path.relative_to(tree).as_posix()}": (path.read_bytes(), path.stat().st_mode & 0o777)
             for path in sorted(tree.rglob("*")) if path.is_file()}
    texts = {
        "lockstep/__init__.py": MODULE,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: lockstep\nVersion: {version}\nLicense: Apache-2.0\n"
        "Summary: Trains LibTorch models on many ranks\nRequires-Python: >=3.8\n"
        f"Requires-Dist: torch (=={facts['libtorch']})\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: scripts/wheel\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/entry_points.txt": "[console_scripts]\nlockstep = lockstep:main\n",
        f"{info}/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }
    files.update({name: (text.encode(), 0o644) for name, text in texts.items()})
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                     for name, (data, _) in files.items())
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    path = folder / f"lockstep-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, data)
    return path


def main():
    build, folder = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    facts = json.loads((build / "package.json").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch) / "lockstep"
        install(build, tree)
        bring(facts["brings"], tree, facts)
        symbols = versioned_symbols(tree, facts)
        tag = least_tag(symbols)
        report(symbols, tag)
        path = write(tree, facts, f"manylinux_2_{tag}_{facts['processor']}", folder)
    print(f"lockstep: {path}, {os.path.getsize(path) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
