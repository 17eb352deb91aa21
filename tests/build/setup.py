"""scripts/setup on systems that are not this one: setup.py REPOSITORY

Each system is a folder with stand-ins for its commands, which alone are in PATH, and a copy of the script."""

import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

from private_machine import on_machine, why_not

ROOT = pathlib.Path(sys.argv[1])
REAL = ("bash", "cat", "dirname", "env", "ls", "mkdir", "cp", "rm", "touch", "grep", "sed")
HEADERS = {"hwy/highway.h": "Highway", "CLI/CLI.hpp": "CLI11", "nlohmann/json.hpp": "nlohmann-json",
           "xxhash.h": "xxHash", "sodium.h": "libsodium", "zlib.h": "zlib", "gtest/gtest.h": "GoogleTest", "gmock/gmock.h": "GoogleMock"}
COMMANDS = {"c++": "compiler", "cmake": "CMake", "ninja": "Ninja", "pkg-config": "pkgconf", "mpicc": "MPI",
            "mpirun": "MPI"}
DEBIAN_13 = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_ID="13"\n'
DEBIAN_12 = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
UBUNTU_22 = 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n'
UBUNTU_26 = 'PRETTY_NAME="Ubuntu 26.04 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="26.04"\n'
MINT = 'PRETTY_NAME="Linux Mint 22"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_ID="22"\n'
ARCH = 'PRETTY_NAME="Arch Linux"\nID=arch\n'

# One Python for the system and for the environments that it makes; `has_pip` lies beside those that have it.
PYTHON = """
here="$(dirname "$0")"
case "$*" in
  -) [ -e $STATE/torch ] && cat $STATE/torch ;;
  *version_info*) case "${0##*/}" in
      python3) [ ! -e $STATE/old_python ] ;; python3.11) grep -qsx python3.11 $STATE/installed ;; esac ;;
  *"import ensurepip, venv"*) [ -e $STATE/ensurepip ] || grep -qs "^${0##*/}-venv$" $STATE/installed ;;
  "-m pip --version") [ -e "$here/has_pip" ] ;;
  "-m pip "*requirements-cuda.txt) echo "$*" >>$STATE/pip; [ ! -e $STATE/no_network ] && touch "$here/has_nvcc" ;;
  "-m pip "*) echo "$*" >>$STATE/pip; touch "$here/has_torch"
    echo "cuda: Optional[str] = ${TORCH_CUDA:-None}" >"$here/version.py" ;;
  *find_spec*) echo "$here" ;;
  *pinned.py*requirements-cuda.txt) [ -e "$here/has_nvcc" ] ;;
  *pinned.py*) [ -e "$here/has_torch" ] ;;
  "-m venv "*) for folder; do :; done
    case "$*" in *--clear*) rm -rf "$folder" ;; esac
    mkdir -p "$folder/bin"; cp "$0" "$folder/bin/python"; touch "$folder/bin/has_pip" ;;
  --version) echo "Python 3.13.5" ;;
  *) exit 0 ;;
esac
"""
APT = {
    "dpkg-query": 'for package; do :; done; grep -qsx "$package" $STATE/installed && echo -n "install ok installed"',
    "apt-cache": 'for package; do :; done; ! grep -qsx "$package" $STATE/unknown',
    "apt-get": 'echo "$*" >>$STATE/apt; [ "$1" = install ] || exit 0; for package; do '
               'grep -qsx "$package" $STATE/unknown && exit 100; echo "$package" >>$STATE/installed; done',
}


class System:
    """`lacks`: commands and headers that are not there."""

    def __init__(self, folder, os_release, apt=False, root_user=True, ensurepip=True, lacks=()):
        self.folder, self.repository, self.bin = folder, folder / "lockstep", folder / "bin"
        self.state, self.venv = folder / "state", folder / "lockstep" / ".venv"
        for made in (self.repository / "scripts", self.bin, self.state):
            made.mkdir(parents=True)
        for name in ("scripts/setup", "scripts/environment.sh", "requirements.txt", "requirements-cuda.txt"):
            shutil.copy(ROOT / name, self.repository / name)
        script = self.repository / "scripts/setup"
        script.write_text(script.read_text(encoding="utf-8").replace("/usr/bin/python3", f"{self.bin}/python3"), encoding="utf-8")
        for name in REAL:
            (self.bin / name).symlink_to(shutil.which(name))
        for header in HEADERS:
            if header not in lacks:
                path = self.folder / "include" / header
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        self.command("id", f"echo {0 if root_user else 1000}")
        self.command("sudo", "exit 1")
        self.command("python3", PYTHON)
        self.command("c++", f'exec {shutil.which("c++")} -nostdinc -I{self.folder}/include "$@"')
        self.command("cmake", "echo cmake version 3.31.6")
        for name in ("ninja", "pkg-config", "mpicc", "mpirun"):
            self.command(name, "exit 0")
        for name, text in (APT if apt else {}).items():
            self.command(name, text)
        for name in lacks:
            (self.bin / name).unlink(missing_ok=True)
        if ensurepip:
            (self.state / "ensurepip").touch()
        self.os_release = folder / "os-release"
        if os_release:
            self.os_release.write_text(os_release, encoding="utf-8")

    def command(self, name, text):
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def has(self, name):
        path = self.state / name
        return path.read_text(encoding="utf-8").split() if path.exists() else []

    def half_venv(self, folder):
        (folder / "bin").mkdir(parents=True)
        shutil.copy(self.bin / "python3", folder / "bin" / "python")
        (folder / "left").touch()

    def nvcc(self, version, folder="bin"):
        (self.folder / folder).mkdir(parents=True, exist_ok=True)
        self.command(f"../{folder}/nvcc", f"echo Cuda compilation tools, release {version}, V{version}.88")

    def setup(self, *arguments, devices=None, **variables):
        """`devices`: names in /dev of a machine without other devices and without this one's toolkits."""
        environment = {"PATH": str(self.bin), "STATE": str(self.state), "LOCKSTEP_CUDA": "OFF",
                       "LOCKSTEP_OS_RELEASE": str(self.os_release), **variables}
        command = [self.repository / "scripts" / "setup", *arguments]
        if devices is not None:
            (self.folder / "scratch").mkdir(exist_ok=True)
            command = on_machine(self.folder / "scratch", devices, ["env", *(f"{k}={v}" for k, v in environment.items()), *command])
            environment = None
        done = subprocess.run(command, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.code, self.text = done.returncode, done.stdout
        return self


@contextlib.contextmanager
def system(*arguments, **options):
    with tempfile.TemporaryDirectory() as folder:
        made = System(pathlib.Path(folder), *arguments, **options)
        try:
            yield made
        except AssertionError:
            print(made.text)
            raise


def expect(made, code, *words):
    assert made.code == code, f"code {made.code} instead of {code}"
    for word in words:
        assert word in made.text, f"no word of {word}"


def a_system_with_apt_gets_packages_and_a_version_that_is_not_tested_is_named():
    for release, name in ((DEBIAN_13, "Debian GNU/Linux 13 (trixie) is not tested"), (MINT, "Linux Mint 22 is not"),
                          (UBUNTU_26, "Ubuntu 26.04 LTS is not tested")):
        with system(release, apt=True) as made:
            expect(made.setup("--tests"), 0, name, "set-up is complete")
            assert {"g++", "libhwy-dev", "libpng-dev", "slurmd", "gfortran", "doxygen"} <= set(made.has("installed"))
            assert (made.venv / "bin" / "has_torch").exists()
    with system(DEBIAN_12, apt=True) as made:
        expect(made.setup(), 0, "set-up is complete")
        assert "not tested" not in made.text


def a_package_that_apt_does_not_know_matters_only_if_a_build_needs_it():
    for lacks, code in ((("CLI/CLI.hpp",), 3), ((), 0)):
        with system(MINT, apt=True, lacks=lacks) as made:
            (made.state / "unknown").write_text("libcli11-dev\n", encoding="ascii")
            expect(made.setup(), code, "apt knows no package libcli11-dev")
            assert ("CLI11" in made.text) == (code == 3)
            assert "g++" in made.has("installed")


def without_root_the_command_is_named():
    with system(DEBIAN_13, apt=True, root_user=False) as made:
        expect(made.setup(), 3, "sudo apt-get update && sudo apt-get install -y --no-install-recommends g++ ",
               "dataset-fashion-mnist", "libjpeg-dev")
        assert not made.has("installed")
        assert "gfortran" not in made.text and "venv" not in made.text, made.text
    with system(DEBIAN_13, apt=True, root_user=False, ensurepip=False) as made:
        expect(made.setup("--tests"), 3, "libjpeg-dev", "slurmd", "gfortran", "doxygen", "python3-venv")


def an_unknown_system_that_has_everything_is_set_up():
    for release in (ARCH, None):
        with system(release) as made:
            expect(made.setup(), 0, "set-up is complete")


def what_an_unknown_system_lacks_is_named_and_the_rest_is_set_up():
    for lacking, name in {**HEADERS, **COMMANDS}.items():
        with system(ARCH, lacks=[lacking]) as made:
            code = 0 if lacking.startswith(("gtest", "gmock")) else 3
            expect(made.setup(), code, "Arch Linux lacks what a build needs", name, lacking, "libhwy-dev",
                   "set-up is complete" if code == 0 else "all is set up but what this system lacks")
            others = {other for other in {**HEADERS, **COMMANDS}.values() if other not in (name, "GoogleTest")}
            assert not [other for other in others if f"  {other}" in made.text], made.text
            assert (made.venv / "bin" / "has_torch").exists()
    with system(ARCH) as made:
        for version, code in (("3.21.9", 3), ("3.9.1", 3), ("3.22.1", 0), ("3.100.0", 0), ("4.0.1", 0), ("10.1", 0)):
            made.command("cmake", f"echo cmake version {version}")
            expect(made.setup(), code, *(["CMake 3.22"] if code else []))


def an_environment_that_was_left_half_made_is_made_anew():
    with system(ARCH) as made:
        made.half_venv(made.venv)
        expect(made.setup(), 0, "making ", "set-up is complete")
        assert (made.venv / "bin" / "has_torch").exists() and not (made.venv / "left").exists()
        (made.state / "pip").unlink()
        expect(made.setup(), 0)
        assert "making" not in made.text and not made.has("pip")


def a_python_without_venv_gets_it_or_it_is_named():
    with system(DEBIAN_13, apt=True, ensurepip=False) as made:
        made.half_venv(made.venv)
        expect(made.setup(), 0, "set-up is complete")
        assert "python3-venv" in made.has("installed")
    with system(ARCH, ensurepip=False) as made:
        expect(made.setup(), 3, "ensurepip", "python3-venv")


def ubuntu_22_gets_a_python_that_the_wheels_exist_for():
    with system(UBUNTU_22, apt=True, ensurepip=False) as made:
        (made.state / "old_python").touch()
        made.command("python3.11", PYTHON)
        expect(made.setup(), 0, "Ubuntu 22.04.5 LTS is not tested", "set-up is complete")
        assert {"python3.11", "python3.11-venv"} <= set(made.has("installed"))
        assert (made.venv / "bin" / "has_torch").exists()


def a_libtorch_that_is_there_is_taken_and_no_second_one():
    for given in (True, False):
        for arguments, makes in (((), False), (("--tests",), True)):
            with system(ARCH) as made:
                torch = made.folder / "opt/torch"
                (torch / "include/torch").mkdir(parents=True)
                (torch / "build-version").write_text("2.12.0+cpu\n", encoding="ascii")
                (made.state / "torch").write_text("" if given else f"{torch}\n", encoding="ascii")
                made.setup(*arguments, LOCKSTEP_CUDA="AUTO", **({"LibTorch_ROOT": str(torch)} if given else {}))
                expect(made, 0, "set-up is complete",
                       *([] if makes else [f"LibTorch: {torch}, of {'LibTorch_ROOT' if given else 'python3'}", f"{torch} is for CPUs"]))
                assert (made.venv / "bin" / "has_torch").exists() == makes and made.venv.exists() == makes
    with system(ARCH) as made:
        expect(made.setup(LibTorch_ROOT=str(made.folder)), 3, "has no include/torch")
    with system(ARCH) as made:
        made.setup()  # makes .venv, which is then the one
        (made.state / "torch").write_text("/opt/torch\n", encoding="ascii")
        expect(made.setup(), 0)
        assert "/opt/torch" not in made.text


def another_environment_of_the_user_is_never_cleared():
    for has_torch in (False, True):
        with system(ARCH) as made:
            other = made.folder / "other"
            made.half_venv(other)
            if has_torch:
                (other / "bin" / "has_torch").touch()
            expect(made.setup(LOCKSTEP_VENV=str(other)), 0 if has_torch else 3, *([] if has_torch else ["no pip"]))
            assert (other / "left").exists()
            expect(made.setup(LOCKSTEP_VENV=str(made.folder / "new")), 0, "making ")


def fetched(made):
    return (made.venv / "bin" / "has_nvcc").exists()


def an_nvcc_of_torchs_cuda_is_taken_or_fetched():
    cases = [
        # nvcc in PATH, nvcc in CUDA_HOME, devices, whether the wheel's nvcc is fetched, what is said
        (None, None, [], False, "no GPU and no nvcc here"),
        ("13.0", None, [], False, "bin/nvcc"),
        ("13.0", None, ["nvidia0", "nvidiactl"], False, "bin/nvcc"),
        (None, None, ["nvidia0", "nvidiactl"], True, "nvcc of "),
        (None, None, ["nvidia3"], True, "nvcc of "),
        ("12.8", None, [], True, "is CUDA 12.8, torch is built for 13.0"),
        ("12.8", None, ["nvidia0"], True, "is CUDA 12.8, torch is built for 13.0"),
        ("12.8", "13.0", ["nvidia0"], False, "home/bin/nvcc"),
        ("13.0", "11.8", ["nvidia0"], False, "bin/nvcc"),
        ("13.2", None, ["nvidia0"], True, "is CUDA 13.2, torch is built for 13.0"),
        ("12.8", "11.8", ["nvidia0"], True, "is CUDA 11.8, torch is built for 13.0"),
        ("broken", None, ["nvidia0"], True, "torch is built for 13.0"),
        (None, None, ["dxg"], True, "nvcc of "),
        (None, None, ["dxg", "without driver"], False, "no GPU"),
    ]
    for path, home, devices, fetches, said in cases:
        with system(ARCH) as made:
            has_driver = "without driver" not in devices
            made.command("ldconfig", f"echo '{'libcuda.so.1 (libc6,x86-64) => /usr/lib/wsl/lib/libcuda.so.1' if has_driver else ''}'")
            if path:
                made.nvcc(path)
            if home:
                made.nvcc(home, "home/bin")
            variables = {"LOCKSTEP_CUDA": "AUTO", "TORCH_CUDA": "'13.0'", "CUDA_HOME": str(made.folder / "home")}
            expect(made.setup(devices=devices, **variables), 0, said, "set-up is complete")
            assert fetched(made) == fetches, (path, home, devices)
            expect(made.setup(devices=devices, **{**variables, "LOCKSTEP_CUDA": "OFF"}), 0, "switched off")


def an_nvcc_that_cannot_be_had_is_named():
    with system(ARCH) as made:
        variables = {"LOCKSTEP_CUDA": "AUTO", "TORCH_CUDA": "'13.0'"}
        (made.state / "no_network").touch()
        expect(made.setup(devices=["nvidia0"], **variables), 3, "LOCKSTEP_CUDA=OFF")
    with system(ARCH) as made:
        variables = {"LOCKSTEP_CUDA": "AUTO", "TORCH_CUDA": "'12.6'"}
        expect(made.setup(devices=["nvidia0"], **variables), 0, "requirements-cuda.txt has no nvcc of CUDA 12.6")
        assert not fetched(made)
        made.nvcc("12.6")
        expect(made.setup(devices=["nvidia0"], **variables), 0, "bin/nvcc")
    for wanted, code in (("AUTO", 0), ("ON", 3)):
        with system(ARCH) as made:
            expect(made.setup(devices=["nvidia0"], LOCKSTEP_CUDA=wanted), code, "is for CPUs")
            assert not fetched(made)


with tempfile.TemporaryDirectory() as empty:
    WHY = why_not(empty)
if WHY:
    print(f"skipped: which nvcc is taken, since no machine can be made here: {WHY}")
    del an_nvcc_of_torchs_cuda_is_taken_or_fetched, an_nvcc_that_cannot_be_had_is_named
for name, test in list(globals().items()):
    if callable(test) and getattr(test, "__module__", "") == "__main__" and "_" in name and name not in ("system", "expect"):
        print(name.replace("_", " "), flush=True)
        test()
