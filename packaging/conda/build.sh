#!/usr/bin/env bash
# Run by conda-build. conda-forge lays LibTorch out over the whole environment; lockstep looks for one folder that has
# include/, lib/ and build-version, as an unpacked LibTorch does.
set -euo pipefail
libtorch="$PREFIX/share/lockstep/libtorch"
mkdir -p "$libtorch"
ln -sfn ../../../include "$libtorch/include"
ln -sfn ../../../lib "$libtorch/lib"
awk '/^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) / { version = version dot $3; dot = "." } END { print version }' \
  "$PREFIX/include/torch/headeronly/version.h" >"$libtorch/build-version"

cmake -S . -B build -G Ninja $CMAKE_ARGS \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DLibTorch_ROOT="$libtorch" \
  -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_BENCHMARKS=OFF -DLOCKSTEP_BUILD_EXAMPLES=OFF \
  -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_FORTRAN=ON
cmake --build build
cmake --install build
