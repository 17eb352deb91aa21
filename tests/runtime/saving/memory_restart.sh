#!/usr/bin/env bash
# A killed rank: the launcher starts the job again, and it goes on from memory to the bits of a run
# that nobody killed.
#   memory_restart.sh LOCKSTEP PROGRAM FOLDER
set -euo pipefail
lockstep="$1" program="$2" folder="$3"
memory="$(mktemp -d)"  # where no other user can rename it, whoever owns the build folder
trap 'rm -rf "$memory"' EXIT
run() {  # run NAME RANK-THAT-DIES
  rm -rf "$folder/$1"
  mkdir -p "$folder/$1" "$memory/$1"
  ln -s "$memory/$1" "$folder/$1/memory"
  "$lockstep" run -n 2 --no-tag --max-restarts 1 -- "$program" "$folder/$1" "$2" \
    >"$folder/$1/out" 2>"$folder/$1/err" || { cat "$folder/$1/out" "$folder/$1/err"; exit 1; }
}
run whole -1
for rank in 0 1; do
  run "killed$rank" "$rank"
  grep -qx 'began at update 20' "$folder/killed$rank/out" || { cat "$folder/killed$rank"/*; exit 1; }
  [ "$(grep ended "$folder/killed$rank/out")" = "$(grep ended "$folder/whole/out")" ] ||
    { cat "$folder"/*/out; exit 1; }
  left="$(find "$memory/killed$rank" -type f)"
  [ -z "$left" ] || { echo "left in memory: $left"; exit 1; }
done
cat "$folder/killed1/out"
