#!/usr/bin/env bash
# Packs the build, unpacks the archive elsewhere, and follows the template's README there: with CMake
# on two ranks, then with pkg-config on one.
#   package.sh CPACK BUILD-FOLDER FOLDER COMPILER GENERATOR [COMPILER-LAUNCHER]
set -euo pipefail
cpack="$1" build="$2" folder="$3" compiler="$4" generator="$5" launcher="${6:-}"
rm -rf "$folder"
mkdir -p "$folder/packages" "$folder/prefix"
"$cpack" --config "$build/CPackConfig.cmake" -G "TGZ;DEB" -B "$folder/packages" >"$folder/cpack.log" ||
  { cat "$folder/cpack.log"; exit 1; }
# A package without its licence may not be passed on.
tar -tzf "$folder"/packages/lockstep-*.tar.gz >"$folder/files"
grep -q '/share/doc/lockstep/LICENSE$' "$folder/files"
tar -xzf "$folder"/packages/lockstep-*.tar.gz -C "$folder/prefix" --strip-components=1
if command -v dpkg-deb >/dev/null; then
  dpkg-deb --field "$folder"/packages/lockstep_*.deb | tee "$folder/fields"
  grep -q '^Package: lockstep$' "$folder/fields"
  grep -q '^Depends: .*libopenmpi-dev' "$folder/fields"
  dpkg-deb --contents "$folder"/packages/lockstep_*.deb >"$folder/contents"
  grep -q '/share/doc/lockstep/copyright$' "$folder/contents"
fi

export PATH="$folder/prefix/bin:$PATH"
cp -r "$folder/prefix/share/lockstep/template" "$folder/template"
cd "$folder/template"
cmake -B build -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
  -DCMAKE_PREFIX_PATH="$folder/prefix" >/dev/null
cmake --build build
lockstep run -n 2 -- build/train | tee with_cmake.log
grep -q 'accuracy 0\.9[0-9]* .*4096 samples' with_cmake.log
lockstep inspect runs/template >inspect.log
grep -q 'whole' inspect.log

export PKG_CONFIG_PATH="$folder/prefix/lib/pkgconfig:$folder/prefix/lib64/pkgconfig:$folder/prefix/lib/$(uname -m)-linux-gnu/pkgconfig"
rm -rf runs
$launcher "$compiler" -O1 -c -o train.o $(pkg-config --cflags lockstep) train.cpp
"$compiler" -o train train.o $(pkg-config --libs lockstep)
./train | tee with_pkg_config.log
grep -q 'accuracy 0\.9[0-9]* .*4096 samples' with_pkg_config.log
