"""Which nvcc a build takes: find_nvcc.py REPOSITORY CMAKE

Each case is a project that includes LockstepCuda.cmake for a LibTorch of CUDA 13.0, with toolkits of stand-ins, on a
machine without other toolkits (skipped where none can be made)."""

import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile

from private_machine import on_machine, why_not

ROOT, CMAKE = pathlib.Path(sys.argv[1]), sys.argv[2]
PROJECT = f"""cmake_minimum_required(VERSION 3.22)
project(made LANGUAGES NONE)
set(LibTorch_CUDA 13.0)
set(LibTorch_CUDA_ROOT "${{CMAKE_SOURCE_DIR}}/wheel")
include({ROOT}/cmake/LockstepCuda.cmake)
message(STATUS "result: [${{LOCKSTEP_NVCC}}] [${{LOCKSTEP_TOOLKIT_HEADERS}}] ${{LOCKSTEP_CUDA_ARCHITECTURES}}")
"""


class Case:
    def __init__(self, folder):
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")

    def toolkit(self, name, version):
        major, minor = version.split(".")
        for made in ("bin", "include/crt"):
            (self.folder / name / made).mkdir(parents=True)
        nvcc = self.folder / name / "bin" / "nvcc"
        nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n", encoding="utf-8")
        nvcc.chmod(0o755)
        (self.folder / name / "include/crt/host_config.h").touch()
        (self.folder / name / "include/cuda.h").write_text(f"#define CUDA_VERSION {major}0{minor}0\n", encoding="utf-8")

    def configure(self, *options, path="", home="", devices=()):
        """Returns the folders of the nvcc and of the headers, and keeps what was printed."""
        paths = ":".join([str(self.folder / name / "bin") for name in path.split()] + ["/usr/bin:/bin"])
        command = ["env", f"PATH={paths}", *([f"CUDA_HOME={self.folder / home}"] if home else []), CMAKE,
                   "-S", self.folder, "-B", self.folder / "build", *options]
        done = subprocess.run(on_machine(self.scratch, devices, command), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        self.code, self.text = done.returncode, done.stdout + done.stderr
        self.errors = " ".join(done.stderr.split())  # cmake breaks lines
        found = re.search(r"result: \[(.*)\] \[(.*)\] (.*)", done.stdout)
        self.architectures = found[3] if found else None
        places = (found[1].removesuffix("/bin/nvcc"), found[2].removesuffix("/include")) if found else (None, None)
        return tuple(place and place.removeprefix(f"{self.folder}/") for place in places)


@contextlib.contextmanager
def case():
    with tempfile.TemporaryDirectory() as folder:
        made = Case(pathlib.Path(folder).resolve())
        try:
            yield made
        except AssertionError:
            print(made.text)
            raise


def expect(found, wanted):
    assert found == wanted, f"{found} instead of {wanted}"


def the_nvcc_of_libtorchs_cuda_is_taken_wherever_it_lies():
    for wheel, path, home, best in ((None, "old new", "", "new"), (None, "new old", "old", "new"), (None, "old", "new", "new"),
                                    ("12.8", "old new", "", "new"), ("13.0", "old new", "", "wheel")):
        with case() as made:
            made.toolkit("old", "12.8")
            made.toolkit("new", "13.0")
            if wheel:
                made.toolkit("wheel", wheel)
            expect(made.configure(path=path, home=home), (best, best))
            assert not made.errors, made.errors


def a_newer_minor_version_is_taken_only_where_there_is_no_other():
    with case() as made:
        for name, version in (("newer", "13.2"), ("older", "12.9"), ("same", "13.0")):
            made.toolkit(name, version)
        expect(made.configure(path="older newer"), ("newer", "newer"))
        expect(made.configure(path="older newer same"), ("same", "same"))


def the_headers_of_condas_toolkit_lie_in_a_folder_of_its_target():
    with case() as made:
        made.toolkit("new", "13.0")
        target = made.folder / "new/targets/x86_64-linux"
        target.mkdir(parents=True)
        (made.folder / "new/include").rename(target / "include")
        expect(made.configure(path="new"), ("new", "new/targets/x86_64-linux"))


def an_nvcc_that_does_not_run_is_named_with_what_it_says():
    with case() as made:
        made.toolkit("broken", "13.0")
        (made.folder / "broken/bin/nvcc").write_text("#!/bin/sh\necho no cudafe++ >&2\nexit 3\n", encoding="utf-8")
        expect(made.configure(path="broken")[0], "")
        assert "broken/bin/nvcc does not run: 3 no cudafe++" in made.errors, made.errors


def what_is_installed_later_is_found():
    for options in ((), ("-DLOCKSTEP_CUDA=ON",)):
        with case() as made:
            made.toolkit("old", "12.8")
            expect(made.configure(path="old"), ("", ""))
            made.toolkit("wheel", "13.0")
            expect(made.configure(*options, path="old"), ("wheel", "wheel"))
            expect(made.architectures, "75-virtual;80-real;90-real")
            assert not made.errors, made.errors


def an_old_build_tree_does_not_hold_the_nvcc_of_then():
    with case() as made:
        made.toolkit("old", "12.8")
        made.toolkit("wheel", "13.0")
        old = [f"-DLOCKSTEP_NVCC_PROGRAM={made.folder}/old/bin/nvcc", f"-DLOCKSTEP_TOOLKIT_HEADERS={made.folder}/old/include"]
        expect(made.configure(*old), ("wheel", "wheel"))


def a_build_without_kernels_is_a_warning_where_there_is_a_gpu_or_another_nvcc():
    for devices, path, warned in (([], "", False), (["nvidia3"], "", True), (["nvidia0", "nvidiactl"], "", True),
                                  ([], "old", True), (["nvidia0"], "old", True), (["nvidia0"], "new", False)):
        with case() as made:
            made.toolkit("old", "12.8")
            made.toolkit("new", "13.0")
            made.configure(path=path, devices=devices)
            expect(made.code, 0)
            expect("requirements-cuda.txt" in made.errors, warned)
            expect("CUDA 12.8" in made.errors, path == "old")
            if warned:
                made.configure("-DLOCKSTEP_CUDA=OFF", path=path, devices=devices)
                expect(made.errors, "")
                made.configure("-DLOCKSTEP_CUDA=ON", path=path, devices=devices)
                expect(made.code, 1)


with tempfile.TemporaryDirectory() as empty:
    WHY = why_not(empty)
if WHY:
    print(f"skipped: no machine can be made here: {WHY}")
    sys.exit(77)
for name, test in list(globals().items()):
    if callable(test) and getattr(test, "__module__", "") == "__main__" and "_" in name:
        print(name.replace("_", " "), flush=True)
        test()
