#!/usr/bin/env bash
# Run by conda-build, once for CPUs and once for each CUDA of conda_build_config.yaml.
set -euo pipefail
cuda=OFF
if [ "${cuda_compiler_version:-None}" != None ]; then
  cuda=ON
fi

cmake -S . -B build -G Ninja $CMAKE_ARGS \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" -DLibTorch_ROOT="$PREFIX" \
  -DLOCKSTEP_BUILD_TESTS=OFF -DLOCKSTEP_BUILD_BENCHMARKS=OFF -DLOCKSTEP_BUILD_EXAMPLES=OFF \
  -DLOCKSTEP_CUDA="$cuda" -DLOCKSTEP_FORTRAN=ON
cmake --build build
cmake --install build
