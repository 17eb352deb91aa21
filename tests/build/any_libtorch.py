"""FindLibTorch on the LibTorches that people have: any_libtorch.py REPOSITORY CMAKE COMPILER FOLDER [--quick] [NAME...]

Each layout is made of small libraries with the names and the run-time paths of the real ones, for a CUDA 99 that no
machine has, and an NCCL that is older than any. A program is configured, built and run with it, installed beside LibTorch,
run there, and run again after both were moved: it must load one CUDA run-time, and find NCCL where LibTorch has it. Without
--quick lockstep itself is configured, too, and the program is linked with the words of lockstep.pc. NAME: only these
layouts.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

CMAKE, COMPILER = sys.argv[2:4]
ROOT, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[4]).resolve()
QUICK, CHOSEN = "--quick" in sys.argv[5:], [word for word in sys.argv[5:] if word != "--quick"]
HASH = "d2a1c0de"
# What libtorch_cuda.so needs, by package.
PACKAGES = {"cuda_runtime": ["cudart.so.99"], "cublas": ["cublas.so.99"], "cufft": ["cufft.so.98"],
            "cuda_cupti": ["cupti.so.99"], "cudnn": ["cudnn.so.96"], "nvshmem": ["nvshmem_host.so.93"],
            "nccl": ["nccl.so.92"]}
TOOLKIT = ("cuda_runtime", "cublas", "cufft", "cuda_cupti")
OTHERS = ("cudnn", "nvshmem")
NCCL_TEXT = "NCCL version 2.0.9+cuda99.0"
PROGRAM = r"""
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef WITH_NCCL
#include <nccl.h>
#endif
int torch_cpu_works();
#ifdef WITH_CUDA
extern "C" int cudaRuntimeGetVersion(int*);
#endif
static char cuda_library[PATH_MAX];
int main() {
  int version = 0, nccl = 0;
#ifdef WITH_CUDA
  cudaRuntimeGetVersion(&version);
#endif
  dl_iterate_phdr([](dl_phdr_info* info, size_t, void*) {
    char path[PATH_MAX];
    if (strstr(info->dlpi_name, "/libcudart") && realpath(info->dlpi_name, path)) printf("cudart %s\n", path);
    if (strstr(info->dlpi_name, "/libtorch_cuda.so")) strcpy(cuda_library, info->dlpi_name);
    return 0;
  }, nullptr);
  if (void* library = cuda_library[0] ? dlopen(cuda_library, RTLD_NOW | RTLD_NOLOAD) : nullptr)
    if (auto* get = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"))) get(&nccl);
  printf("works %d, CUDA %d, NCCL %d\n", torch_cpu_works(), version, nccl);
}
"""
PROJECT = f"""cmake_minimum_required(VERSION 3.22)
project(uses_libtorch LANGUAGES CXX)
set(CMAKE_MODULE_PATH "{ROOT}/cmake")
include(GNUInstallDirs)
set(LOCKSTEP_INSTALL ON)
find_package(LibTorch 2.11 REQUIRED)
include(LockstepRunPaths)
message(STATUS "found: ${{LibTorch_VERSION}}, CUDA '${{LibTorch_CUDA}}', headers of NCCL ${{LibTorch_NCCL_HEADER}}")
add_executable(program program.cpp)
target_link_libraries(program PRIVATE LibTorch::torch ${{CMAKE_DL_LIBS}})
if(TARGET LibTorch::cudart)
  target_compile_definitions(program PRIVATE WITH_CUDA)
endif()
if(TARGET LibTorch::nccl)
  target_link_libraries(program PRIVATE LibTorch::nccl)
  target_compile_definitions(program PRIVATE WITH_NCCL)
endif()
install(TARGETS program)
"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def run(*command, **variables):
    environment = {key: value for key, value in os.environ.items()
                   if key not in ("LD_LIBRARY_PATH", "LibTorch_ROOT", "CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX")}
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**environment, **variables}, check=False)
    return done.returncode, done.stdout


@functools.lru_cache(maxsize=None)
def compiled(text, options):
    """An object file of this text."""
    path = FOLDER / "objects" / f"{len(list((FOLDER / 'objects').glob('*')))}.o"
    done = subprocess.run([COMPILER, "-x", "c++", "-fPIC", "-c", *options, "-o", path, "-"], input=text, text=True, check=False)
    assert done.returncode == 0, f"no object file: {text}"
    return path


def library(path, text, needs=(), run_path="$ORIGIN", soname=None, options=()):
    """A shared library that needs others, which it finds by DT_RPATH."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code, said = run(COMPILER, "-shared", "-o", path, compiled(text, options), f"-Wl,-soname,{soname or path.name}",
                     "-Wl,--no-as-needed,--disable-new-dtags,--allow-shlib-undefined", f"-Wl,-rpath,{run_path}", *needs)
    assert code == 0, said


def symbol(name):
    return re.split(r"[.]", name)[0]


def cuda_library(folder, name, file=None, soname=None):
    folder.mkdir(parents=True, exist_ok=True)
    os.link(made_cuda_library(name, file or f"lib{name}", soname), folder / (file or f"lib{name}"))


@functools.lru_cache(maxsize=None)
def made_cuda_library(name, file, soname):
    text = f'extern "C" void uses_{symbol(name)}() {{}}\n'
    if symbol(name) == "cudart":
        text += 'extern "C" int cudaRuntimeGetVersion(int* version) { *version = 99000; return 0; }\n'
    if symbol(name) == "nccl":
        text += nccl()
    path = FOLDER / "made" / str(soname) / file
    library(path, text, soname=soname)
    return path


def nccl():
    return f'extern "C" int ncclGetVersion(int* version) {{ *version = 20009; return 0; }}\nextern const char nccl_says[] = "{NCCL_TEXT}";\n'


def cuda_headers(folder, version=99000):
    write(folder / "cuda_runtime_api.h", f"#define CUDART_VERSION  {version}\n")


def nccl_header(folder, version=20009):
    write(folder / "nccl.h", f"#define NCCL_VERSION_CODE {version}\n#include <cuda_runtime_api.h>\n"
                             "static_assert(CUDART_VERSION == 99000);\n")


class Layout:
    """LibTorch's own libraries in `lib`, the headers in `include`, the folder to give as LibTorch_ROOT in `root`."""

    def __init__(self, name, root="torch", version="2.11.0"):
        self.folder = FOLDER / name / "layout"
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        self.root = self.folder / root
        self.lib, self.include = self.root / "lib", self.root / "include"
        self.options, self.variables = [], {}
        parts = version.split(".")
        write(self.include / "torch/headeronly/version.h", "".join(
            f"#define TORCH_VERSION_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH"), parts)))
        write(self.include / "torch/csrc/api/include/torch/version.h", "#include <torch/headeronly/version.h>\n")
        write(self.include / "torch/csrc/api/include/torch/all.h", "#error C++17 or later\n")

    def for_cpus(self, run_path="$ORIGIN", abi=1, needs=()):
        library(self.lib / "libc10.so", "#include <string>\nnamespace c10::detail { void torchCheckFail(const char*, const char*, "
                "unsigned, const std::string&) {} }", options=(f"-D_GLIBCXX_USE_CXX11_ABI={abi}", "-std=c++17"))
        library(self.lib / "libtorch_cpu.so", "int torch_cpu_works() { return 1; }", [self.lib / "libc10.so", *needs], run_path)
        library(self.lib / "libtorch.so", "", [self.lib / "libtorch_cpu.so"], run_path)
        return self

    def for_cuda(self, run_path, without=(), renamed=False, own=""):
        """`without`: packages that libtorch_cuda.so does not need. `own`: more text of it."""
        self.for_cpus(run_path)
        twins = self.folder.parent / "twins"  # for the linker: the real ones have their own places
        names = [name for package, names in PACKAGES.items() for name in names if package not in without]
        needs = []
        for name in names:
            file = f"libcudart-{HASH}.so.99" if renamed and symbol(name) == "cudart" else f"lib{name}"
            cuda_library(twins, name, file)
            needs.append(twins / file)
        cudart = [need for need in needs if "cudart" in need.name]
        library(self.lib / "libc10_cuda.so", "", [self.lib / "libc10.so", *cudart], run_path)
        calls = "".join(f'extern "C" void uses_{symbol(name)}();\n' for name in names)
        calls += f"void call_all() {{ {''.join(f'uses_{symbol(name)}(); ' for name in names)} }}\n"
        library(self.lib / "libtorch_cuda.so", calls + own, [self.lib / "libc10_cuda.so", self.lib / "libtorch_cpu.so", *needs], run_path)
        library(self.lib / "libtorch.so", "", [self.lib / "libtorch_cpu.so", self.lib / "libtorch_cuda.so"], run_path)
        shutil.rmtree(twins)
        return self

    def has(self, folder, *packages):
        for package in packages:
            for name in PACKAGES[package]:
                cuda_library(folder, name)

    def option(self, name, value):
        self.options.append(f"-D{name}={value}")
        return self

    def toolkit(self, folder, packages=TOOLKIT):
        """As NVIDIA lays it out: lib64 and include are links."""
        target = folder / "targets/x86_64-linux"
        self.has(target / "lib", *packages)
        cuda_headers(target / "include")
        for name in ("lib", "include"):
            (folder / name.replace("lib", "lib64")).symlink_to(f"targets/x86_64-linux/{name}")
        return folder


def wheel(name, folder_of):
    made = Layout(name)
    folders = {package: f"nvidia/{folder_of(package)}" for package in PACKAGES}
    made.for_cuda(":".join([*(f"$ORIGIN/../../{folder}/lib" for folder in dict.fromkeys(folders.values())), "$ORIGIN"]))
    for package, folder in folders.items():
        made.has(made.folder / folder / "lib", package)
    cuda_headers(made.folder / folders["cuda_runtime"] / "include")
    nccl_header(made.folder / folders["nccl"] / "include")
    write(made.root / "version.py", "__version__ = '2.11.0+cu990'\ncuda: Optional[str] = '99.1'\n")
    return made


def zip_211(name, without=()):
    """The zip up to 2.11: a renamed run-time with its old SONAME, NCCL inside libtorch_cuda.so."""
    made = Layout(name, "libtorch").for_cuda("$ORIGIN", without=("nccl",), renamed=True, own=nccl())
    made.has(made.lib, *(package for package in PACKAGES if package not in ("cuda_runtime", "nccl", *without)))
    cuda_library(made.lib, "cudart.so.99", f"libcudart-{HASH}.so.99", "libcudart.so.99")
    write(made.root / "build-version", "2.11.0+cu992\n")
    return made


def zip_212(name):
    """The zip of 2.12: torch's own libraries only."""
    made = Layout(name, "libtorch").for_cuda("$ORIGIN")
    write(made.root / "build-version", "2.12.0+cu990\n")
    return made


def zip_213(name):
    """The zip of 2.13: the libraries under their own names."""
    made = zip_212(name)
    made.has(made.lib, *PACKAGES)
    return made


def with_toolkit(made, *more):
    made.option("CUDAToolkit_ROOT", made.toolkit(made.folder / "cuda"))
    for package in more:
        made.has(made.folder / package / "lib", package)
        nccl_header(made.folder / package / "include")
    if "nccl" in more:
        made.option("NCCL_ROOT", made.folder / "nccl")
    others = [made.folder / package / "lib" for package in more if package != "nccl"]
    return made.option("LibTorch_CUDA_LIBRARY_DIRS", ";".join(map(str, others))) if others else made


def container(name):
    """LibTorch built from source: it names the folders of this system."""
    made = Layout(name, "usr/local/lib/python3.12/dist-packages/torch")
    system = made.folder / "usr/lib/x86_64-linux-gnu"
    made.for_cuda(f"{made.folder}/usr/local/cuda/lib64:{system}:$ORIGIN")
    made.toolkit(made.folder / "usr/local/cuda-99.0")
    (made.folder / "usr/local/cuda").symlink_to("cuda-99.0")
    made.has(system, *OTHERS, "nccl")
    nccl_header(made.folder / "usr/include")
    write(made.root / "version.py", "__version__ = '2.11.0a0+a1b2c3d4e5.nv26.05'\ncuda: Optional[str] = '99.0'\n")
    return made


def conda(name, as_package=False):
    """An environment of conda-forge; the torch of its Python is made of links."""
    made = Layout(name, "environment")
    target = made.root / "targets/x86_64-linux"
    made.for_cuda("$ORIGIN").has(target / "lib", *TOOLKIT)
    cuda_headers(target / "include")
    for path in (target / "lib").iterdir():
        (made.lib / path.name).symlink_to(f"../targets/x86_64-linux/lib/{path.name}")
    made.has(made.lib, *OTHERS, "nccl")
    nccl_header(made.include)
    if as_package:
        package = made.lib / "python3.12/site-packages/torch"
        for path in [*made.lib.glob("lib*torch*.so"), *made.lib.glob("libc10*.so")]:
            (package / "lib").mkdir(parents=True, exist_ok=True)
            (package / "lib" / path.name).symlink_to(f"../../../../{path.name}")
        (package / "include").symlink_to("../../../../include")
        write(package / "version.py", "__version__ = '2.11.0'\ncuda: Optional[str] = '99.0'\n")
        made.root = package
    return made


def without_nccl(name):
    made = Layout(name).for_cuda("$ORIGIN", without=("nccl",), own='extern const char says[] = "requires NCCL version 2.27.0 or later";\n')
    made.has(made.lib, *(package for package in PACKAGES if package != "nccl"))
    return made


def by_environment(name):
    """The module system names folders while this is configured, and not when the program runs."""
    made = zip_212(name)
    made.has(made.folder / "modules/lib", *PACKAGES)
    made.variables["LD_LIBRARY_PATH"] = str(made.folder / "modules/lib")
    return made


def newer_nccl_header(name):
    made = with_toolkit(zip_211(name), "nccl")
    nccl_header(made.folder / "nccl/include", 20010)
    return made


def other_cuda_headers(name):
    made = wheel(name, lambda package: "cu99" if package in TOOLKIT else package)
    cuda_headers(made.folder / "nvidia/cu99/include", 98000)
    return made


def static_run_time(name):
    made = Layout(name).for_cuda("$ORIGIN", without=("cuda_runtime", "nccl"))
    made.has(made.lib, *(package for package in PACKAGES if package not in ("cuda_runtime", "nccl")))
    return made


def without_libraries(name):
    made = Layout(name)
    made.lib.mkdir()
    return made


def lacks_a_library_of_cpus(name):
    made = Layout(name)
    cuda_library(made.folder / "elsewhere", "mkl_rt.so.2")
    return made.for_cpus(needs=[made.folder / "elsewhere/libmkl_rt.so.2"])


def toolkit_and_others(name):
    return with_toolkit(zip_212(name), "nccl", *OTHERS)


FOUND = "found: 2.11.0, CUDA '99{}', headers of NCCL {}".format
ANSWER = "works 1, CUDA 99000, NCCL 20009"
# name: what makes it, what CMake says, what the program says; None: it is refused.
LAYOUTS = {
    "for_cpus": (lambda name: Layout(name).for_cpus(), ["found: 2.11.0, CUDA ''"], "works 1, CUDA 0, NCCL 0"),
    "older": (lambda name: Layout(name, version="2.4.1").for_cpus(), ['"2.4.1"', "2.11"], None),
    "without_libraries": (without_libraries, ["LibTorch_LIBRARY"], None),
    "lacks_a_library_of_cpus": (lacks_a_library_of_cpus, ["needs libmkl_rt.so.2:"], None),
    "wheel": (lambda name: wheel(name, lambda package: "cu99" if package in TOOLKIT else package), [FOUND(".1", 20009)], ANSWER),
    "wheel_in_parts": (lambda name: wheel(name, lambda package: package), [FOUND(".1", 20009)], ANSWER),
    "wheel_other_headers": (other_cuda_headers, [FOUND(".1", 0), "CUDART_VERSION 98000"], ANSWER),
    "zip_211": (zip_211, [FOUND(".2", 0), "no nccl.h of LibTorch's NCCL 2.0.9"], ANSWER),
    "zip_211_toolkit": (lambda name: with_toolkit(zip_211(name), "nccl"), [FOUND(".2", 20009)], ANSWER),
    "zip_211_newer_nccl_header": (newer_nccl_header, [FOUND(".2", 0), "NCCL_VERSION_CODE 20010"], ANSWER),
    "zip_211_lacks": (lambda name: zip_211(name, without=["cufft"]), ["needs libcufft.so.98:", "-DCUDAToolkit_ROOT"], None),
    "zip_211_lacks_toolkit": (lambda name: with_toolkit(zip_211(name, without=["cufft"]), "nccl"), [FOUND(".2", 20009)], ANSWER),
    "zip_212": (zip_212, ["needs libcudart.so.99, ", *(f"lib{names[0]}" for names in PACKAGES.values()), "-DNCCL_ROOT",
                          "-DLibTorch_CUDA_LIBRARY_DIRS", "pip install torch==2.11.0"], None),
    "zip_212_roots": (toolkit_and_others, [FOUND(".0", 20009)], ANSWER),
    "zip_212_environment": (by_environment, [FOUND(".0", 0)], ANSWER),
    "zip_213": (zip_213, [FOUND(".0", 0)], ANSWER),
    "container": (container, [FOUND(".0", 20009)], ANSWER),
    "conda": (conda, [FOUND("", 20009)], ANSWER),
    "conda_package": (lambda name: conda(name, as_package=True), [FOUND(".0", 20009)], ANSWER),
    "without_nccl": (without_nccl, [FOUND("", 0), "its LibTorch for CUDA has none (USE_NCCL=0)"], "works 1, CUDA 99000, NCCL 0"),
    "old_abi": (lambda name: Layout(name).for_cpus(abi=0), ["_GLIBCXX_USE_CXX11_ABI=0"], None),
    "static_run_time": (static_run_time, ["names no libcudart.so"], None),
}

# Those that name no folder of this machine: with the program beside them they run from any other place.
MOVABLE = ("for_cpus", "wheel", "wheel_in_parts", "zip_213", "conda")


def right_answer(program, answer):
    code, said = run(program)
    files = set(re.findall(r"^cudart (.*)$", said, re.M))
    assert code == 0 and answer in said, f"{program}: code {code}, {said}"
    assert len(files) == ("CUDA 99000" in answer), f"CUDA run-times of {program}: {files}"


def check(name, make, words, answer):
    made = make(name)
    build, prefix = FOLDER / name / "build", made.root.parent / "tree"
    shutil.copytree(FOLDER / "seed/CMakeFiles", build / "CMakeFiles")  # what CMake found out about the compiler
    code, said = run(CMAKE, "-S", FOLDER / "project", "-B", build, f"-DLibTorch_ROOT={made.root}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                     f"-DCMAKE_INSTALL_PREFIX={prefix}", *made.options, **made.variables)
    said = " ".join(said.split())  # cmake breaks lines
    assert (code == 0) == (answer is not None), f"code {code}: {said}"
    for word in words:
        assert word in said, f"no word of {word}: {said}"
    if answer is None:
        return
    code, said = run(CMAKE, "--build", build)
    assert code == 0, said
    right_answer(build / "program", answer)
    code, said = run(CMAKE, "--install", build)
    assert code == 0, said
    shutil.rmtree(build)
    right_answer(prefix / "bin/program", answer)
    if not QUICK:
        check_lockstep(name, made, answer)
    if name in MOVABLE:
        moved = made.folder.rename(made.folder.with_name("moved"))
        right_answer(moved / prefix.relative_to(made.folder) / "bin/program", answer)


def check_lockstep(name, made, answer):
    build = FOLDER / name / "lockstep"
    code, said = run(CMAKE, "-S", ROOT, "-B", build, f"-DLibTorch_ROOT={made.root}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                     *(f"-DLOCKSTEP_{part}=OFF" for part in ("BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_BENCHMARKS", "FORTRAN")),
                     *made.options, **made.variables)
    assert code == 0, said
    text = (build / "pkgconfig/here/lockstep.pc").read_text(encoding="utf-8")
    libdir = build / "lib"
    libdir.mkdir()
    for link in (build / "libtorch").glob("*"):
        shutil.copy(link, libdir / link.name, follow_symlinks=False)
    words = re.search(r"^Libs: (.*)", text, re.M)[1].replace("${libdir}", str(libdir)).replace("${libtorch}", str(made.root)).split()
    words = [word for word in words if not word.startswith("-llockstep")]
    with_cuda = ["-DWITH_CUDA"] if "CUDA 99000" in answer else []
    code, said = run(COMPILER, *with_cuda, "-o", build / "program", FOLDER / "project/program.cpp", *words)
    assert code == 0, said
    right_answer(build / "program", answer)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    write(FOLDER / "project/CMakeLists.txt", PROJECT)
    write(FOLDER / "project/program.cpp", PROGRAM)
    (FOLDER / "objects").mkdir()
    write(FOLDER / "seed/CMakeLists.txt", "cmake_minimum_required(VERSION 3.22)\nproject(seed LANGUAGES CXX)\n")
    assert run(CMAKE, "-S", FOLDER / "seed", "-B", FOLDER / "seed", f"-DCMAKE_CXX_COMPILER={COMPILER}")[0] == 0
    wrong = 0
    for name, (make, words, answer) in LAYOUTS.items():
        if not CHOSEN or name in CHOSEN:
            try:
                check(name, make, words, answer)
                print(f"{name}: {'refused' if answer is None else 'runs'}", flush=True)
            except AssertionError as error:
                wrong += 1
                print(f"{name}: wrong: {error}", flush=True)
    sys.exit(wrong > 0)


main()
