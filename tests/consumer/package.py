"""Installs a package of lockstep as its user does, and tries it: a .tar.gz, a .deb or a wheel file.

  package.py [OPTIONS] PACKAGE LIBTORCH

A .tar.gz is unpacked, and LibTorch is that of the active Python environment. A wheel is installed by pip into a new
environment that has LibTorch, LIBTORCH and the CUDA wheels beside it, as links. A .deb is installed by dpkg into the root of a
private mount namespace, and LibTorch_ROOT names LibTorch. Then, for each in the same way:
  no file names a folder of the builder, and the licence is there
  the template builds, trains on 2 ranks, and its snapshot is whole
  it trains without a compiler in PATH, and as another user
  the installed tree works in another folder, and says what is missing where there is no LibTorch
--doctor: runs `lockstep doctor` instead. --seconds: only builds and trains the template, and prints how long that took since
the package was there. Exit code 77: this package cannot be installed here; the last line says why.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77
NOBODY = 65534
# SCRATCH PACKAGE COMMAND...: what dpkg writes goes to a file system in memory, which is gone at the end.
IN_NAMESPACE = r"""
set -e
scratch="$0" package="$1"
shift
mount -t tmpfs none "$scratch"
for folder in usr etc var; do
  mkdir -p "$scratch/$folder/upper" "$scratch/$folder/work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$scratch/$folder/upper,workdir=$scratch/$folder/work" "/$folder"
done
[ -n "$package" ] || exit 0
dpkg --root / --install "$package" || exit 9
exec "$@"
"""


def fail(text):
    sys.exit(f"package.py: {text}")


def skip(text):
    print(f"skipped: {text}")
    sys.exit(SKIPPED)


class Installed:
    """A package in place since `began`: its `prefix`, the `command`, and the environment that its user has."""

    def __init__(self, began, prefix, command, environment, files):
        self.prefix, self.command, self.files = prefix, command, files
        self.began = began
        clean = {name: value for name, value in os.environ.items()
                 if name not in ("LibTorch_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONPATH")}
        self.environment = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
                            "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                            **clean, **environment}

    def run(self, *command, cwd=None, **variables):
        """What it prints; a command that fails ends the test."""
        print("$", *command, flush=True)
        done = subprocess.run([*map(str, command)], cwd=cwd, env={**self.environment, **variables}, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout, flush=True)
        if done.returncode != 0:
            fail(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
        return done.stdout


def environment_of(libtorch):
    """The Python environment that has it, as if it was active; else its own variable."""
    if libtorch.parent.name == "site-packages":
        python = libtorch.parents[3]
        return {"VIRTUAL_ENV": str(python), "PATH": f"{python / 'bin'}:{os.environ['PATH']}"}
    return {"LibTorch_ROOT": str(libtorch)}


def files_below(folder):
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]


def unpack(package, libtorch, folder):
    prefix = folder / "prefix"
    prefix.mkdir()
    began = time.monotonic()
    subprocess.run(["tar", "-xzf", package, "-C", prefix, "--strip-components=1"], check=True)
    return Installed(began, prefix, prefix / "bin" / "lockstep", environment_of(libtorch), files_below(prefix))


def beside(site, libtorch):
    """What `pip install torch` would have put there."""
    for name, place in (("torch", libtorch), ("nvidia", libtorch.parent / "nvidia")):
        if place.is_dir():
            (site / name).symlink_to(place)


def install_wheel(package, libtorch, folder):
    environment = folder / "environment"
    made = subprocess.run([sys.executable, "-m", "venv", environment], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        skip(f"{sys.executable} makes no environment with pip: {made.stdout.strip()}")
    site = next(environment.glob("lib/python3*/site-packages"))
    beside(site, libtorch)
    began = time.monotonic()
    subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                    "--disable-pip-version-check", package], check=True)
    return Installed(began, site / "lockstep", environment / "bin" / "lockstep", {}, files_below(site / "lockstep"))


def install_deb(libtorch):
    """Within the namespace, after dpkg."""
    listed = subprocess.run(["dpkg", "--listfiles", "lockstep"], check=True, stdout=subprocess.PIPE, text=True).stdout
    files = [path for path in map(pathlib.Path, listed.splitlines()) if path.is_file()]
    return Installed(time.monotonic(), pathlib.Path("/usr"), pathlib.Path("/usr/bin/lockstep"), {"LibTorch_ROOT": str(libtorch)}, files)


def enter_namespace(package):
    """Runs this script again where the package is installed; comes back only within."""
    if os.geteuid() != 0 or not shutil.which("dpkg") or not shutil.which("unshare"):
        skip("a .deb is installed by root with dpkg and unshare")
    with tempfile.TemporaryDirectory() as scratch:
        start = ["unshare", "--mount", "bash", "-c", IN_NAMESPACE, scratch]
        tried = subprocess.run([*start, ""], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if tried.returncode != 0:
            skip(f"no private root can be made here: {tried.stdout.strip()}")
        done = subprocess.run([*start, package, sys.executable, "-B", *sys.argv, "--within"])
    if done.returncode == 9:
        skip("dpkg does not install it: packages that it depends on are missing")
    sys.exit(done.returncode)


def check_files(installed, builder):
    names = [os.fsencode(path) for path in builder]
    for path in installed.files:
        content = path.read_bytes()
        for name in names:
            if name in content:
                fail(f"{path} names {os.fsdecode(name)}, a folder of the builder")
    if not any(path.name in ("LICENSE", "copyright") and path.parent.name == "lockstep" for path in installed.files):
        fail("it has no licence")
    print(f"{len(installed.files)} files, none of which names a folder of the builder")


def train(installed, folder, **variables):
    """Trains in a folder of its own with the program that was built in `folder`."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    text = installed.run(installed.command, "run", "-n", "2", "--", folder / "build" / "train", cwd=folder, **variables)
    if not re.search(r"accuracy 0\.9\d* .*4096 samples", text):
        fail("the template did not train")


def inspect(installed, command, folder, prefix=()):
    if "whole" not in installed.run(*prefix, command, "inspect", folder / "runs" / "template"):
        fail("the snapshot is not whole")


def build_template(installed, folder, arguments):
    """By a link of one name, so that the compiler's cache knows the second package."""
    prefix = pathlib.Path(installed.run(installed.command, "--prefix").strip())
    if prefix != installed.prefix:
        fail(f"lockstep --prefix prints {prefix}, not {installed.prefix}")
    place = []
    if prefix != pathlib.Path("/usr"):
        (folder / "installed").symlink_to(prefix)
        place = [f"-DCMAKE_PREFIX_PATH={folder / 'installed'}"]
    shutil.copytree(prefix / "share" / "lockstep" / "template", folder / "template")
    installed.run("cmake", "-B", "build", "-G", arguments.generator, *place, f"-DCMAKE_CXX_COMPILER={arguments.compiler}",
                  f"-DCMAKE_CXX_COMPILER_LAUNCHER={arguments.launcher}", cwd=folder / "template")
    installed.run("cmake", "--build", "build", cwd=folder / "template")
    if "MPI_C_" in (folder / "template" / "build" / "CMakeCache.txt").read_text(encoding="utf-8"):
        fail("a program without MPI code of its own looks for an MPI to be built")
    return folder / "template"


def train_without_compiler(installed, template):
    with tempfile.TemporaryDirectory() as tools:
        for name in ("mpirun", "prterun", "sh", "ssh", "rsh"):  # Open MPI may insist on one of the last two
            if found := shutil.which(name):
                (pathlib.Path(tools) / name).symlink_to(found)
        if shutil.which("c++", path=tools) or shutil.which("cmake", path=tools):
            fail("there is a compiler")
        train(installed, template, PATH=tools)


def train_under_mpich(installed, template):
    """The program that ran under Open MPI, as it is."""
    if not shutil.which("mpiexec.mpich"):
        print("skipped: training under MPICH, which is not here")
        return
    shutil.rmtree(template / "runs")
    text = installed.run(installed.command, "run", "--mpirun", "mpiexec.mpich", "-n", "2", "--", template / "build" / "train", cwd=template)
    if "accuracy 0.9" not in text:
        fail("the template did not train under MPICH")


def train_as_another_user(installed, template, libtorch):
    if os.geteuid() != 0:
        return  # this is one
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = installed.prefix / "bin" / "lockstep"
    for path in (template / "build" / "train", command, libtorch / "lib" / "libtorch.so"):
        if subprocess.run([*as_nobody, "test", "-r", path], check=False).returncode != 0:
            print(f"skipped: training as another user, who may not read {path}")
            return
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        text = installed.run(*as_nobody, command, "run", "-n", "2", "--", template / "build" / "train", cwd=folder, HOME=folder)
        if "accuracy 0.9" not in text:
            fail("the template did not train as another user")
        inspect(installed, command, pathlib.Path(folder), as_nobody)


def move(installed, libtorch, folder):
    """The tree to a folder with another name; a package in site-packages keeps its neighbours."""
    place = folder / "moved" / "site-packages"
    place.mkdir(parents=True)
    installed.prefix.rename(place / "lockstep")
    if not installed.environment.keys() & {"VIRTUAL_ENV", "LibTorch_ROOT"}:
        beside(place, libtorch)
    return place / "lockstep" / "bin" / "lockstep"


def check_without_libtorch(command):
    """The command says so where no LibTorch is beside it and none is in the environment."""
    with tempfile.TemporaryDirectory() as nothing:
        done = subprocess.run([command, "inspect", nothing], env={"PATH": nothing}, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    print(done.stdout)
    if done.returncode != 3 or "needs LibTorch" not in done.stdout or "LibTorch_ROOT" not in done.stdout:
        fail(f"without a LibTorch it ended with {done.returncode}")


def build_by_pkg_config(installed, folder, libtorch, arguments):
    template = folder / "template"
    flags = ["pkg-config", f"--define-variable=libtorch={libtorch}"]
    where = {"PKG_CONFIG_PATH": ":".join(str(path) for path in installed.prefix.glob("lib*/**/pkgconfig"))}
    compile_flags, link_flags = (installed.run(*flags, kind, "lockstep", **where).split() for kind in ("--cflags", "--libs"))
    launcher = [arguments.launcher] if arguments.launcher else []
    installed.run(*launcher, arguments.compiler, "-O1", "-c", "-o", "train.o", *compile_flags, "train.cpp", cwd=template)
    installed.run(arguments.compiler, "-o", "train", "train.o", *link_flags, cwd=template)
    shutil.rmtree(template / "runs")
    if "accuracy 0.9" not in installed.run("./train", cwd=template):
        fail("the program that pkg-config's flags built did not train")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=pathlib.Path, metavar="PACKAGE")
    parser.add_argument("libtorch", type=pathlib.Path, metavar="LIBTORCH")
    parser.add_argument("--folder", type=pathlib.Path, metavar="DIR", help="made anew; default: one that is gone at the end")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR", help="the build that was packed")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--generator", default="Ninja")
    parser.add_argument("--launcher", default="", help="of the compiler, such as ccache")
    parser.add_argument("--pkg-config", action="store_true", help="also build the template with pkg-config")
    parser.add_argument("--doctor", action="store_true")
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    [package] = sorted(arguments.package.parent.glob(arguments.package.name))
    libtorch = arguments.libtorch.absolute()
    if package.suffix == ".deb" and not arguments.within:
        enter_namespace(package)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder.resolve() if arguments.folder else pathlib.Path(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if package.suffix == ".deb":
            installed = install_deb(libtorch)
        elif package.suffix == ".whl":
            installed = install_wheel(package, libtorch, folder)
        else:
            installed = unpack(package, libtorch, folder)
        print(installed.run(installed.command, "--version"))
        if arguments.doctor:
            installed.run(installed.command, "doctor")
            return
        if arguments.seconds:
            train(installed, build_template(installed, folder, arguments))
            print(f"seconds {time.monotonic() - installed.began:.1f}")
            return
        check_files(installed, {ROOT, arguments.build.resolve(), libtorch, libtorch.parent})
        if package.suffix == ".whl":
            installed.run(sys.executable, "-B", ROOT / "tests" / "consumer" / "run_paths.py", installed.prefix)
        template = build_template(installed, folder, arguments)
        train(installed, template)
        inspect(installed, installed.command, template)
        train_without_compiler(installed, template)
        train_under_mpich(installed, template)
        train_as_another_user(installed, template, libtorch)
        if arguments.pkg_config:
            build_by_pkg_config(installed, folder, libtorch, arguments)
        if package.suffix != ".deb":
            (folder / "installed").unlink()
            command = move(installed, libtorch, folder)
            inspect(installed, command, template)
            if package.suffix == ".whl":
                (command.parents[2] / "torch").unlink()
            check_without_libtorch(command)
    print(f"{package.name} is good")


main()
