"""The place where a pack runs: LibTorch of a Python wheel, the environment of programs, and what the machine is."""

import glob
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


class Missing(Exception):
    """What the pack needs is not here; the message says what to do."""


def torch_version(torch):
    """Of a torch folder, without loading it."""
    found = re.search(r"__version__ = '([^']+)'", (pathlib.Path(torch) / "version.py").read_text(encoding="utf-8"))
    return found.group(1) if found else "unknown"


def own_torch():
    """That of this Python, or None."""
    found = importlib.util.find_spec("torch")
    return pathlib.Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else None


def _given(place):
    """The torch folder of a site-packages folder, an environment, or wheels."""
    place = pathlib.Path(place).resolve()
    for pattern in ("torch", "lib/python*/site-packages/torch"):
        for found in place.glob(pattern):
            if (found / "version.py").exists():
                return found
    wheels = [place] if place.suffix == ".whl" else sorted(place.glob("*.whl"))
    if not wheels:
        raise Missing(f"{place} is neither a folder with torch in it, nor a wheel, nor a folder of wheels")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(HERE / "site")
    if not (HERE / "site/torch/version.py").exists():
        raise Missing(f"no wheel of torch is in {place}")
    return HERE / "site/torch"


def _fetched(wanted, log):
    command = [sys.executable, "-m", "pip", "install", "--target", str(HERE / "site"), f"torch=={wanted.split('+')[0]}"]
    with open(log, "ab") as file:
        code = subprocess.run(command, stdout=file, stderr=file, check=False).returncode
    if code != 0:
        raise Missing(f"{sys.executable} has no torch {wanted}, and pip could not install it: {' '.join(command)} ended with "
                      f"code {code}. Without network: run --torch FOLDER, with torch's wheels or site-packages in it")
    return HERE / "site/torch"


def find_torch(given, wanted, log):
    """The folder of torch `wanted`: the given one, this Python's, one that was unpacked before, or PyPI's."""
    if given:
        found = _given(given)
        if torch_version(found) != wanted:
            raise Missing(f"{found} is torch {torch_version(found)}, the pack was made with {wanted}")
        return found
    for found in (own_torch(), HERE / "site/torch"):
        if found and (found / "version.py").exists() and torch_version(found) == wanted:
            return found
    found = _fetched(wanted, log)
    if torch_version(found) != wanted:
        raise Missing(f"PyPI gave torch {torch_version(found)}, the pack was made with {wanted}: run --torch FOLDER")
    return found


def numbers(version):
    return [int(part) for part in re.findall(r"\d+", version)]


def require_glibc(wanted):
    here = os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0"
    if wanted and numbers(here) < numbers(wanted):
        raise Missing(f"this machine has {here}, the programs need glibc {wanted}: make the pack on an older system")


def set_environment(torch):
    """Of this process and all that it starts."""
    parts = [HERE / "lib", torch / "lib", *sorted(glob.glob(str(torch.parent / "nvidia/*/lib")))]
    parts += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    mpi = HERE / "mpi"
    os.environ.update({
        "LibTorch_ROOT": str(torch), "LD_LIBRARY_PATH": ":".join(map(str, parts)),
        "PATH": f"{mpi / 'bin'}:{os.environ.get('PATH', os.defpath)}", "OPAL_PREFIX": str(mpi),
        "OPAL_PKGLIBDIR": str(mpi / "plugins"), "OPAL_PKGDATADIR": str(mpi / "share"), "PMIX_INSTALL_PREFIX": str(mpi),
        "PMIX_PKGLIBDIR": str(mpi / "pmix"), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"})
    if torch != own_torch():
        os.environ["PYTHONPATH"] = ":".join(filter(None, [str(torch.parent), os.environ.get("PYTHONPATH")]))


GPUS = r"""
import ctypes, json
found = []
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    count, version = ctypes.c_int(), ctypes.c_int()
    code = cuda.cuInit(0)
    if code:
        print(json.dumps({"why": f"the driver answers with error {code}"}))
        raise SystemExit
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for k in range(count.value):
        name, size, major, minor = ctypes.create_string_buffer(256), ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
        cuda.cuDeviceGetName(name, 256, k)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), k)
        cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, k)
        cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, k)
        found.append(f"{name.value.decode()}, {size.value / 2**30:.0f} GiB, sm_{major.value}{minor.value}")
    print(json.dumps({"gpus": found, "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
                      "why": "" if found else "the driver sees no GPU"}))
except OSError:
    print(json.dumps({"why": "there is no driver (libcuda.so.1)"}))
"""


def _first_line(*paths):
    for path in paths:
        try:
            return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip()
        except (OSError, IndexError):
            pass
    return ""


def _field(path, key):
    found = re.search(rf"^{key}\s*:\s*(.*)$", text_of(path), re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def text_of(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def physical_cores():
    """Of those that this process may use."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return len({_first_line(siblings.format(core)) or core for core in os.sched_getaffinity(0)})


def machine():
    """{name: text}, and why there is no GPU (empty where there is one)."""
    done = subprocess.run([sys.executable, "-c", GPUS], capture_output=True, text=True, check=False)
    try:
        seen = json.loads(done.stdout)
    except ValueError:
        seen = {"why": f"the driver ended its program with code {done.returncode}"}
    gpus = seen.get("gpus", [])
    driver = _first_line("/sys/module/nvidia/version") or "unknown"
    return {
        "GPU": "; ".join(f"{gpus.count(gpu)} x {gpu}" for gpu in dict.fromkeys(gpus)) or f"none: {seen['why']}",
        "driver": f"{driver}, CUDA {seen['cuda']}" if gpus else driver,
        "CPU": f"{_field('/proc/cpuinfo', 'model name')}, {len(os.sched_getaffinity(0))} threads of {physical_cores()} cores",
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "system": f"Linux {os.uname().release}, {os.confstr('CS_GNU_LIBC_VERSION')}, Python {sys.version.split()[0]}",
    }, "" if gpus else seen["why"]
