"""Checks the recipes of packaging/ without Spack and conda: packaging.py ROOT CMAKE LIBTORCH FOLDER

The version and the dependencies of each recipe are those of CMake. Spack's recipe runs with a stand-in for Spack, and
asks only for options that CMake has. conda's build.sh runs in an environment that is laid out like conda-forge's, with
a stand-in for cmake: FindLibTorch then finds LibTorch in the folder that build.sh made.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

CMAKE = sys.argv[2]
ROOT, LIBTORCH, FOLDER = (pathlib.Path(sys.argv[i]) for i in (1, 3, 4))
PACKAGING = ROOT / "packaging"

# What find_package() and pkg_check_modules() look for: Spack's name, conda-forge's name.
NAMES = {
    "LibTorch": ("py-torch", "libtorch"), "MPI": ("mpi", "openmpi"), "Threads": (None, None),
    "ZLIB": ("zlib-api", "zlib"), "hwy": ("highway", "libhwy"), "PkgConfig": ("pkgconfig", "pkg-config"),
    "libxxhash": ("xxhash", "xxhash"), "nlohmann_json": ("nlohmann-json", "nlohmann_json"), "CLI11": ("cli11", "cli11"),
    "libjpeg": ("libjpeg-turbo", "libjpeg-turbo"), "libpng": ("libpng", "libpng"),
    "libarchive": ("libarchive", "libarchive"),
}
TOOLS = {"cmake", "ninja", "c", "cxx", "fortran"}
wrong = []


def expect(condition, text):
    if not condition:
        wrong.append(text)


def same(what, recipe, cmake):
    for name in sorted(recipe - cmake):
        wrong.append(f"{what} depends on {name}, which CMake does not look for")
    for name in sorted(cmake - recipe):
        wrong.append(f"{what} does not depend on {name}, which CMake looks for")


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def looked_for():
    dependencies = text_of("cmake/LockstepDependencies.cmake")
    found = set()
    for path in [*ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt")]:
        if path.relative_to(ROOT).parts[0] not in ("tests", "template", "build", "benchmarks", "examples"):
            found |= set(re.findall(r"find_package\((\w+)", path.read_text(encoding="utf-8")))
    found |= set(re.findall(r"find_package\((\w+)", dependencies)) | {"libxxhash"}
    optional = re.search(r"foreach\(_optional IN ITEMS ([\w ]+)\)", dependencies)[1].split()
    return found | set(optional)


class Spec(dict):
    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=f"/prefix/{name}", command=types.SimpleNamespace(path="/bin/python3"),
                                     package=types.SimpleNamespace(platlib="lib/python3.11/site-packages"))

    def satisfies(self, _):
        return True


def spack_recipe():
    """The class of the recipe, and what its directives said."""
    said = {"versions": [], "depends": {}, "variants": []}
    stand_in = types.ModuleType("spack.package")
    stand_in.license = stand_in.generator = lambda *_: None
    stand_in.version = said["versions"].append
    stand_in.variant = lambda name, **_: said["variants"].append(name)
    stand_in.depends_on = lambda spec, **_: said["depends"].update({re.match(r"[\w-]+", spec)[0]: spec})
    stand_in.join_path = os.path.join

    class CMakePackage:
        spec = Spec()

        def define(self, name, value):
            return f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}"

        def define_from_variant(self, name, variant):
            expect(variant in said["variants"], f"spack: there is no variant {variant}")
            return self.define(name, True)

    stand_in.CMakePackage = CMakePackage
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": stand_in})
    space = {}
    exec(compile((PACKAGING / "spack/package.py").read_text(encoding="utf-8"), "package.py", "exec"), space)
    return space["Lockstep"](), said


def options_of_cmake():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in
                        [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")])
    return {"LibTorch_ROOT", "Python3_EXECUTABLE", "BUILD_SHARED_LIBS",
            *re.findall(r"option\((\w+)", sources), *re.findall(r"set\((\w+) AUTO CACHE", sources)}


def check_options(what, arguments):
    for name in re.findall(r"-D(\w+)=", " ".join(arguments)):
        expect(name in options_of_cmake() or name.startswith("CMAKE_"), f"{what}: CMake has no option {name}")


def conda_part(recipe, part):
    """The names of a list under requirements:."""
    found = re.search(rf"^  {part}:\n((?:    - .*\n)+)", recipe, re.M)
    return [re.sub(r"\{\{ compiler\('(\w+)'\) \}\}", r"\1", line) for line in re.findall(r"- (.*)", found[1])]


def run_conda_build(version):
    """build.sh, where LibTorch lies as in conda-forge's environments. Returns what it gave to cmake."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    prefix, stand_in = FOLDER / "prefix", FOLDER / "bin"
    for folder in (prefix / "lib", stand_in):
        folder.mkdir(parents=True)
    (prefix / "include").symlink_to(LIBTORCH / "include")
    for name in ("libtorch.so", "libtorch_cpu.so", "libc10.so"):
        (prefix / "lib" / name).symlink_to(LIBTORCH / "lib" / name)
    (stand_in / "cmake").write_text('#!/bin/sh\necho "$@" >>"$CALLS"\n', encoding="ascii")
    (stand_in / "cmake").chmod(0o755)
    subprocess.run([PACKAGING / "conda/build.sh"], check=True, cwd=FOLDER, env={
        **os.environ, "PREFIX": str(prefix), "CMAKE_ARGS": "", "CALLS": str(FOLDER / "calls"),
        "PATH": f"{stand_in}:{os.environ['PATH']}"})
    (FOLDER / "CMakeLists.txt").write_text(f'''cmake_minimum_required(VERSION 3.25)
project(find LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
find_package(LibTorch {version} EXACT REQUIRED)
message(STATUS "found ${{LibTorch_VERSION}} ${{LibTorch_CUDA}}.")
''', encoding="ascii")
    done = subprocess.run([CMAKE, "-S", FOLDER, "-B", FOLDER / "build",
                           f"-DLibTorch_ROOT={prefix}/share/lockstep/libtorch"], capture_output=True, text=True)
    expect(done.returncode == 0 and f"found {version} ." in done.stdout,
           f"conda: FindLibTorch does not find what build.sh laid out: {done.stdout}{done.stderr}")
    return (FOLDER / "calls").read_text(encoding="ascii").splitlines()


def main():
    lists = text_of("CMakeLists.txt")
    version = re.search(r"project\(lockstep VERSION ([\d.]+)", lists)[1]
    oldest = re.search(r"find_package\(LibTorch ([\d.]+)", text_of("cmake/LockstepDependencies.cmake"))[1]
    cmake = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", lists)[1]
    pinned = re.search(r"^torch==([\d.]+)", text_of("requirements.txt"), re.M)[1]
    expect(pinned.startswith(oldest), f"requirements.txt pins torch {pinned}; CMake's oldest is {oldest}")
    names = [NAMES[name] for name in looked_for()]

    package, said = spack_recipe()
    expect(said["versions"] == [version], f"spack: the versions are {said['versions']}; CMake's is {version}")
    same("spack", set(said["depends"]) - TOOLS, {spack for spack, _ in names if spack})
    expect(f"@{oldest}:" in said["depends"]["py-torch"], f"spack: py-torch is not from {oldest} on")
    expect(f"@{cmake}:" in said["depends"]["cmake"], f"spack: cmake is not from {cmake} on")
    check_options("spack", package.cmake_args())

    recipe = (PACKAGING / "conda/meta.yaml").read_text(encoding="utf-8")
    expect(f"\n  version: {version}\n" in recipe, f"conda: the version is not {version}")
    build, host, run = (conda_part(recipe, part) for part in ("build", "host", "run"))
    same("conda", {line.split()[0] for line in build + host} - TOOLS, {conda for _, conda in names if conda})
    expect(set(run) <= set(host), "conda: run has what host has not")
    expect(set(host) - set(run) == {"cli11", "nlohmann_json"},
           "conda: cli11 and nlohmann_json, which no public header includes, are in host alone, and nothing else")
    expect(f"cmake >={cmake}" in build, f"conda: cmake is not from {cmake} on")
    expect(f"libtorch >={oldest} cpu*" in run, f"conda: libtorch is not from {oldest} on, for CPUs")
    torch = re.search(r"__version__ = '([\d.]+)", (LIBTORCH / "version.py").read_text(encoding="utf-8"))[1]
    calls = run_conda_build(torch)
    check_options("conda", calls)
    expect([call.split()[0] for call in calls] == ["-S", "--build", "--install"], "conda: configure, build, install")

    print("\n".join(wrong) or "the recipes are those of CMake")
    sys.exit(bool(wrong))


main()
