#!/usr/bin/env python3
"""Takes the machine code for one architecture out of programs and libraries, for the fake CUDA to run.

  machine_code.py [--arch sm_75] [--cache FOLDER] FILE...

Prints the value of FAKE_CUDA_CODE: a folder for each file that has device code. A folder holds an index.txt with a
line "kernel file" for each kernel, and the files: a `.fatbin` is one element of the original, still compressed (in
torch 2.11's libtorch_cuda: 34 MB instead of 563 MB); a `.cubin` was assembled from PTX. cuobjdump reads both.

Each content is taken out once; a file that is in the cache costs milliseconds. The cache is $FAKE_CUDA_CACHE, else
~/.cache/lockstep_fake_cuda. Exit code 77: a tool is missing, and which package has it.
"""

import argparse
import hashlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from device_elements import COMPRESSED, PTX, chosen, container, containers, kernels  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAYOUT = "1"  # of the cache; a change makes everything anew
DEFAULT = "sm_75"
UNPACKED_AT_ONCE = 24  # elements: about 30 MB on the disk for a moment


class Missing(Exception):
    """A tool or a kind of code is not there; the text says what would bring it."""


def cache_folder():
    return pathlib.Path(os.environ.get("FAKE_CUDA_CACHE") or pathlib.Path.home() / ".cache/lockstep_fake_cuda")


def package_folders():
    """Where Python packages may lie: of this interpreter, else of the repository's environment."""
    found = [pathlib.Path(sysconfig.get_path("purelib"))]
    environment = pathlib.Path(os.environ.get("LOCKSTEP_VENV") or ROOT / ".venv")
    return found + sorted(environment.glob("lib/python3*/site-packages"))


def tools(name):
    """The programs of this name, the newest kind first."""
    beside_torch = "triton/backends/nvidia/bin/"
    places = [os.environ.get(name.upper(), "")]
    for folder in package_folders():
        places += [folder / "nvidia/cu13/bin" / name, folder / beside_torch / name]
    places += [shutil.which(name) or "", f"/usr/local/cuda/bin/{name}"]
    # PTX of a newer CUDA needs the ptxas of that CUDA, and triton's is older than torch's.
    places.sort(key=lambda place: beside_torch in str(place))
    return [str(place) for place in places if place and os.access(place, os.X_OK)]


def cuobjdump():
    found = tools("cuobjdump")
    if not found:
        raise Missing("there is no cuobjdump: it comes with triton, which torch of requirements.txt brings on Linux "
                      "(python3 -m pip install -r requirements.txt), or with a CUDA toolkit")
    return found[0]


def torch_library(name="libtorch_cuda.so"):
    """A library of the installed torch; the import of torch itself would take seconds."""
    spec = importlib.util.find_spec("torch")
    folders = [pathlib.Path(spec.origin).parent] if spec and spec.origin else []
    folders += [folder / "torch" for folder in package_folders()]
    for folder in folders:
        if (folder / "lib" / name).exists():
            return folder / "lib" / name
    raise Missing(f"there is no {name}: it comes with torch of requirements.txt, in its build for CUDA")


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def assembled(element, architecture, cache):
    """The path of a cubin made from an element of PTX, once for each content."""
    key = hashlib.sha256(f"{LAYOUT} sm_{architecture} ".encode() + element.whole).hexdigest()
    kept = cache / "assembled" / f"{key}.cubin"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        (pathlib.Path(work) / "one.fatbin").write_bytes(element.alone())
        code, text = run([cuobjdump(), "-xptx", "all", "one.fatbin"], work)
        sources = list(pathlib.Path(work).glob("*.ptx"))
        if code != 0 or len(sources) != 1:
            raise Missing(f"cuobjdump gives no PTX: {text.strip()}")
        said = re.search(re.escape(sources[0].name) + r"(.*)", text)
        wanted = [option for option in said[1].split() if not option.startswith(("-arch", "-warn", "--warn"))]
        complaints = []
        for ptxas in tools("ptxas"):
            code, text = run([ptxas, *wanted, f"-arch=sm_{architecture}", sources[0].name, "-o", "made.cubin"], work)
            if code == 0:
                os.replace(pathlib.Path(work) / "made.cubin", kept)
                return kept
            complaints.append(f"{ptxas}: {text.strip().splitlines()[0] if text.strip() else code}")
    raise Missing("no ptxas takes this PTX: that of the CUDA that made it does (nvidia-cuda-nvcc of "
                  "requirements-cuda.txt, or a CUDA toolkit)" + "".join("\n  " + line for line in complaints))


def unpacked(elements, cache):
    """The cubins of compressed elements, one after the other; few lie on the disk at a time."""
    for start in range(0, len(elements), UNPACKED_AT_ONCE):
        some = elements[start:start + UNPACKED_AT_ONCE]
        with tempfile.TemporaryDirectory(dir=cache) as work:
            (pathlib.Path(work) / "some.fatbin").write_bytes(container(some))
            code, text = run([cuobjdump(), "-xelf", "all", "some.fatbin"], work)
            # Names repeat where two sources have the same name: then one element at a time.
            written = re.findall(r"Extracting ELF file +\d+: (\S+)", text)
            if len(set(written)) == len(some):
                for name in written:
                    yield (pathlib.Path(work) / name).read_bytes()
                continue
            if len(some) == 1:
                raise Missing(f"cuobjdump unpacks no machine code ({code}): {text.strip()}")
        for one in some:
            yield from unpacked([one], cache)


def write_folder(folder, stem, picked, architecture, cache):
    """Fills a folder with the code of the picked elements, and its index."""
    packed = iter(unpacked([e for e in picked if e.kind != PTX and e.compressed], cache))
    with open(folder / "index.txt", "w", encoding="utf-8") as index:
        for number, element in enumerate(picked):
            if element.kind == PTX:
                name, cubin = f"{stem}.{number}.cubin", assembled(element, architecture, cache)
                os.link(cubin, folder / name)
                cubin = cubin.read_bytes()
            else:
                name, cubin = f"{stem}.{number}.fatbin", next(packed) if element.compressed else element.payload
                (folder / name).write_bytes(element.alone())
            index.writelines(f"{kernel} {name}\n" for kernel in kernels(cubin))


def code_folder(path, architecture=DEFAULT, cache=None):
    """The folder with the machine code of a file for this architecture, or None if it has no device code."""
    cache, path, number = pathlib.Path(cache or cache_folder()), pathlib.Path(path).resolve(), int(architecture[3:])
    state = path.stat()
    known = f"{LAYOUT} {COMPRESSED} {architecture} {path} {state.st_size} {state.st_mtime_ns}"
    stamp = cache / "stamps" / hashlib.sha256(known.encode()).hexdigest()
    if stamp.exists():
        name = stamp.read_text(encoding="utf-8")
        if name == "":
            return None
        if (cache / name / "index.txt").exists():
            return cache / name
    picked = [one for one in (chosen(elements, number) for elements in containers(path)) if one]
    content = hashlib.sha256(f"{LAYOUT} {architecture} ".encode())
    for element in picked:
        content.update(element.whole)
    name = f"{architecture}/{path.stem}-{content.hexdigest()[:16]}" if picked else ""
    (cache / "stamps").mkdir(parents=True, exist_ok=True)
    if picked and not (cache / name / "index.txt").exists():
        made = pathlib.Path(tempfile.mkdtemp(dir=cache))
        try:
            write_folder(made, path.stem, picked, number, cache)
            (cache / name).parent.mkdir(parents=True, exist_ok=True)
            made.rename(cache / name)
        except OSError:
            if not (cache / name / "index.txt").exists():  # else another process was faster
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
    stamp.write_text(name, encoding="utf-8")
    return cache / name if picked else None


def libraries_of(program):
    """The libraries that a program loads and that may hold device code: CUDA's own, which the fake CUDA replaces or
    leaves alone, are not among them."""
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    paths = re.findall(r"=> (/\S+)", listed)
    return [path for path in paths if "/nvidia/" not in path and not path.startswith(("/lib", "/usr/lib"))]


def code_folders(program=None, architecture=DEFAULT, cache=None):
    """The folders for FAKE_CUDA_CODE: of the program, of the libraries that it loads, and of torch's operators."""
    files = [pathlib.Path(program), *map(pathlib.Path, libraries_of(program))] if program else []
    files.append(torch_library())
    found = [code_folder(path, architecture, cache) for path in dict.fromkeys(path.resolve() for path in files)]
    return [folder for folder in found if folder]


def environment(program=None, architecture=DEFAULT, cache=None):
    """The variables of the fake CUDA that name the code and the tool that reads it."""
    folders = code_folders(program, architecture, cache)
    return {"FAKE_CUDA_CODE": ":".join(map(str, folders)), "FAKE_CUDA_CC": architecture[3:],
            "FAKE_CUDA_CACHE": str(cache or cache_folder()), "CUOBJDUMP": cuobjdump()}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arch", default=DEFAULT)
    options.add_argument("--cache", default=None)
    options.add_argument("--program", action="store_true", help="also the libraries that it loads, and torch's code")
    options.add_argument("files", nargs="*", metavar="FILE")
    given = options.parse_args()
    try:
        found = []
        for path in given.files:
            found += code_folders(path, given.arch, given.cache) if given.program else [
                code_folder(path, given.arch, given.cache)]
        if not given.files:
            found = code_folders(None, given.arch, given.cache)
    except Missing as missing:
        print(f"skipped: {missing}")
        return 77
    print(":".join(str(folder) for folder in dict.fromkeys(found) if folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
