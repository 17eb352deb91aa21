# What the scripts share; source it. Sets:
#   root     the repository
#   venv     the Python environment that holds LibTorch (LOCKSTEP_VENV, else .venv)
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="${LOCKSTEP_VENV:-$root/.venv}"
readonly root venv

say() { printf 'lockstep: %s\n' "$*"; }

# die CODE MESSAGE...
die() {
  local code="$1"
  shift
  printf 'lockstep: %s\n' "$@" >&2
  exit "$code"
}

# Whether this machine has a GPU of NVIDIA's, whatever CUDA_VISIBLE_DEVICES hides. WSL 2 shows any maker's as /dev/dxg.
has_gpu() {
  compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/nvidiactl ] ||
    { [ -e /dev/dxg ] && PATH="$PATH:/usr/sbin:/sbin" ldconfig -p | grep 'libcuda\.so\.1 ' >/dev/null; }
}

# The Python whose torch is LibTorch, if LibTorch_ROOT names no other.
python_of_torch() {
  if [ -x "$venv/bin/python" ]; then echo "$venv/bin/python"; else command -v python3; fi
}

# configure PRESET [CMAKE-ARGUMENT...]
configure() {
  local preset="$1"
  shift
  (cd "$root" && cmake --preset "$preset" -DPython3_EXECUTABLE="$(python_of_torch)" "$@" >/dev/null) ||
    die 3 "cmake could not configure the preset $preset"
}

# build PRESET TARGET...
build() {
  local preset="$1"
  shift
  cmake --build "$(build_dir "$preset")" -- "${@:-all}" ||
    die 1 "the build of the preset $preset failed"
}

build_dir() {
  if [ "$1" = release ]; then echo "$root/build"; else echo "$root/build-$1"; fi
}

# built_tree [--build FOLDER ...]: the folder of a build that can be installed: FOLDER as it is, else build, made now.
built_tree() {
  if [ "${1:-}" = --build ]; then
    realpath "${2:?--build needs a folder}"
    return
  fi
  {
    "$root/scripts/setup"
    configure release
    build release lockstep_installed
  } >&2
  build_dir release
}
