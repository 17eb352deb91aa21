"""Checks the recipes of packaging/ without Spack and conda: packaging.py ROOT FOLDER

The version and the dependencies of each recipe are those of CMake. Spack's recipe runs with a stand-in for Spack, and
asks only for options that CMake has. conda's build.sh runs with a stand-in for cmake. Both are read for CPUs and for CUDA.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

ROOT, FOLDER = map(pathlib.Path, sys.argv[1:3])
PACKAGING = ROOT / "packaging"

# What find_package() and pkg_check_modules() look for: Spack's name, conda-forge's name.
NAMES = {
    "LibTorch": ("py-torch", "libtorch"), "Threads": (None, None),
    "ZLIB": ("zlib-api", "zlib"), "hwy": ("highway", "libhwy"), "PkgConfig": ("pkgconfig", "pkg-config"),
    "libxxhash": ("xxhash", "xxhash"), "libsodium": ("libsodium", "libsodium"),
    "nlohmann_json": ("nlohmann-json", "nlohmann_json"), "CLI11": ("cli11", "cli11"),
    "libjpeg": ("libjpeg-turbo", "libjpeg-turbo"), "libpng": ("libpng", "libpng"),
    "libarchive": ("libarchive", "libarchive"),
}
FOUND_BY_RANKS = {"spack": "mpi", "conda": "openmpi"}  # not looked for when lockstep is built
TOOLS = {"cmake", "ninja", "c", "cxx", "fortran"}
OF_CUDA = {"spack": {"cuda", "nccl"}, "conda": {"cuda", "cuda-version", "cuda-cudart-dev", "nccl"}}
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
    for path in [ROOT / "CMakeLists.txt", *ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt")]:
        if path.relative_to(ROOT).parts[0] not in ("tests", "template", "build", "benchmarks", "examples"):
            found |= set(re.findall(r"find_package\((\w+)", path.read_text(encoding="utf-8")))
    found |= set(re.findall(r"find_package\((\w+)", dependencies)) | {"libxxhash", "libsodium"}
    optional = re.search(r"foreach\(_optional IN ITEMS ([\w ]+)\)", dependencies)[1].split()
    return (found | set(optional)) - {"GTest"}


class Spec:
    def __init__(self, with_cuda):
        self.with_cuda = with_cuda

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix=f"/prefix/{name}", command=types.SimpleNamespace(path="/bin/python3"),
                                     package=types.SimpleNamespace(platlib="lib/python3.11/site-packages"))

    def satisfies(self, condition):
        return self.with_cuda if condition == "+cuda" else not self.with_cuda if condition == "~cuda" else True


def spack_recipe(with_cuda):
    """The class of the recipe, and what its directives said."""
    said = {"versions": [], "depends": {}, "types": {}, "variants": []}
    spec = Spec(with_cuda)
    stand_in = types.ModuleType("spack.package")
    stand_in.license = stand_in.generator = lambda *_: None
    stand_in.version = said["versions"].append
    stand_in.variant = lambda name, **_: said["variants"].append(name)

    def depends_on(wanted, when="", type="", **_):
        if spec.satisfies(when):
            name = re.match(r"[\w-]+", wanted)[0]
            said["types"][name] = type
            said["depends"][name] = said["depends"].get(name, "") + wanted.removeprefix(name)

    stand_in.depends_on = depends_on
    stand_in.join_path = os.path.join

    class CMakePackage:
        def __init__(self):
            self.spec = spec

        def define(self, name, value):
            return f"-D{name}={'ON' if value is True else 'OFF' if value is False else value}"

        def define_from_variant(self, name, variant):
            expect(variant in said["variants"], f"spack: there is no variant {variant}")
            return self.define(name, spec.satisfies(f"+{variant}"))

    stand_in.CMakePackage = CMakePackage
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": stand_in})
    space = {}
    exec(compile((PACKAGING / "spack/package.py").read_text(encoding="utf-8"), "package.py", "exec"), space)
    return space["Lockstep"](), said


def options_of_cmake():
    sources = "\n".join(path.read_text(encoding="utf-8") for path in
                        [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake")])
    return {"LibTorch_ROOT", "CUDAToolkit_ROOT", "NCCL_ROOT", "Python3_EXECUTABLE", "BUILD_SHARED_LIBS",
            *re.findall(r"option\((\w+)", sources), *re.findall(r"set\((\w+) AUTO CACHE", sources)}


def check_options(what, arguments):
    for name in re.findall(r"-D(\w+)=", " ".join(arguments)):
        expect(name in options_of_cmake() or name.startswith("CMAKE_"), f"{what}: CMake has no option {name}")


def conda_part(recipe, part, with_cuda):
    """The names of a list under requirements:."""
    found = re.search(rf"^  {part}:\n((?:    - .*\n)+)", recipe, re.M)
    kind = "==" if with_cuda else "!="
    lines = [line for line in re.findall(r"- (.*)", found[1]) if f'{kind} "None"]' not in line]
    return [re.sub(r"\{\{ compiler\('(\w+)'\) \}\}", r"\1", line.split("  # [")[0]) for line in lines]


def run_conda_build(cuda):
    """What build.sh gives to cmake."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    stand_in = FOLDER / "bin"
    stand_in.mkdir(parents=True)
    (stand_in / "cmake").write_text('#!/bin/sh\necho "$@" >>"$CALLS"\n', encoding="ascii")
    (stand_in / "cmake").chmod(0o755)
    subprocess.run([PACKAGING / "conda/build.sh"], check=True, cwd=FOLDER, env={
        **os.environ, "PREFIX": "/environment", "CMAKE_ARGS": "", "CALLS": str(FOLDER / "calls"),
        "cuda_compiler_version": cuda, "PATH": f"{stand_in}:{os.environ['PATH']}"})
    return (FOLDER / "calls").read_text(encoding="ascii").splitlines()


def check_spack(with_cuda, version, oldest, cmake, names):
    what = "spack +cuda" if with_cuda else "spack"
    package, said = spack_recipe(with_cuda)
    expect(said["versions"] == [version], f"{what}: the versions are {said['versions']}; CMake's is {version}")
    more = OF_CUDA["spack"] if with_cuda else set()
    same(what, set(said["depends"]) - TOOLS, {spack for spack, _ in names if spack} | more | {FOUND_BY_RANKS["spack"]})
    expect(said["types"][FOUND_BY_RANKS["spack"]] == "run", f"{what}: MPI is needed where ranks run, and only there")
    torch = said["depends"]["py-torch"]
    expect(f"@{oldest}:" in torch, f"{what}: py-torch is not from {oldest} on")
    expect(("+cuda+nccl" if with_cuda else "~cuda") in torch, f"{what}: py-torch is {torch}")
    expect(f"@{cmake}:" in said["depends"]["cmake"], f"{what}: cmake is not from {cmake} on")
    arguments = package.cmake_args()
    check_options(what, arguments)
    for option in (["CUDAToolkit_ROOT=/prefix/cuda", "NCCL_ROOT=/prefix/nccl", "LOCKSTEP_CUDA=ON"] if with_cuda
                   else ["LOCKSTEP_CUDA=OFF"]):
        expect(f"-D{option}" in arguments, f"{what}: no {option} in {arguments}")


def check_conda(with_cuda, version, oldest, cmake, names):
    what = "conda for CUDA" if with_cuda else "conda"
    recipe = (PACKAGING / "conda/meta.yaml").read_text(encoding="utf-8")
    expect(f"\n  version: {version}\n" in recipe, f"{what}: the version is not {version}")
    build, host, run = (conda_part(recipe, part, with_cuda) for part in ("build", "host", "run"))
    more = OF_CUDA["conda"] if with_cuda else set()
    same(what, {line.split()[0] for line in build + host} - TOOLS, {conda for _, conda in names if conda} | more)
    run = ["cuda-cudart-dev" if name == "cuda-cudart" else name for name in run]
    expect(FOUND_BY_RANKS["conda"] in run, f"{what}: run has no {FOUND_BY_RANKS['conda']}")
    run = [name for name in run if name != FOUND_BY_RANKS["conda"]]
    expect(set(run) <= set(host), f"{what}: run has what host has not")
    expect(set(host) - set(run) == {"cli11", "nlohmann_json"},
           f"{what}: cli11 and nlohmann_json, which no public header includes, are in host alone, and nothing else")
    expect(f"cmake >={cmake}" in build, f"{what}: cmake is not from {cmake} on")
    expect(f"libtorch >={oldest} {'cuda' if with_cuda else 'cpu'}*" in run, f"{what}: libtorch is not from {oldest} on")
    calls = run_conda_build("12.9" if with_cuda else "None")
    check_options(what, calls)
    expect([call.split()[0] for call in calls] == ["-S", "--build", "--install"], f"{what}: configure, build, install")
    for option in ("LibTorch_ROOT=/environment", f"LOCKSTEP_CUDA={'ON' if with_cuda else 'OFF'}"):
        expect(f"-D{option} " in calls[0], f"{what}: no {option} in {calls[0]}")


def main():
    lists = text_of("CMakeLists.txt")
    version = re.search(r"project\(lockstep VERSION ([\d.]+)", lists)[1]
    oldest = re.search(r"find_package\(LibTorch ([\d.]+)", text_of("cmake/LockstepDependencies.cmake"))[1]
    cmake = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", lists)[1]
    pinned = re.search(r"^torch==([\d.]+)", text_of("requirements.txt"), re.M)[1]
    expect(pinned.startswith(oldest), f"requirements.txt pins torch {pinned}; CMake's oldest is {oldest}")
    names = [NAMES[name] for name in looked_for()]

    for with_cuda in (False, True):
        check_spack(with_cuda, version, oldest, cmake, names)
        check_conda(with_cuda, version, oldest, cmake, names)
    print("\n".join(wrong) or "the recipes are those of CMake")
    sys.exit(bool(wrong))


main()
