#!/bin/bash
# Four ranks, two on each of two hosts, lose a rank, a host, or everything, and go on: from memory,
# from memory on the host that is left, from the disk.
#   survival.sh LOCKSTEP PROGRAM      PROGRAM: saving_memory_restart
# Exit code: 0; 77 where there can be no hosts; else the test failed and says why.
set -u
here=$(dirname "$(readlink -f "$0")")
lockstep=$1
program=$2
work=$(mktemp -d /tmp/lockstep-survival.XXXXXX)
trap 'rm -rf "$work"' EXIT

# run NAME FAULT "OPTIONS" RANK [wait]: sets out, code and folder
run() {
  local name=$1 fault=$2 options=$3
  shift 3
  folder=$work/$name
  out=$folder/out
  mkdir -p "$folder/memory"
  rm -f "$folder/begin"
  LOCKSTEP_HOSTS_MEMORY=$folder/memory "$here/on_two_hosts.sh" "$fault" "$folder/begin" \
    "$lockstep" run -n 4 --host 10.77.0.1:2,10.77.0.2:2 --no-tag $options -- \
    "$program" "$folder" "$@" >"$out" 2>&1
  code=$?
  [ "$code" != 77 ] || exit 77
}
fail() {
  echo "failed: $*" >&2
  cat "$out" >&2
  exit 1
}
says() { grep -q -- "$1" "$out" || fail "$folder does not say '$1'"; }
ended() { grep ended "$out"; }

run whole none "" -1
[ "$code" = 0 ] || fail "the undisturbed run ended with $code"
whole=$(ended)

for rank in 0 3; do
  run "rank$rank" none "--max-restarts 1" "$rank"
  [ "$code" = 0 ] || fail "exit code $code"
  says 'began at update 20'
  [ "$(ended)" = "$whole" ] || fail "other bits than $whole"
  left=$(find "$folder/memory" -type f)
  [ -z "$left" ] || fail "left in memory: $left"
done

run node node-kill "--max-restarts 2 --min-ranks 2" 3 wait
[ "$code" = 0 ] || fail "exit code $code"
says 'goes on with 2 ranks instead of 4'
says 'began at update 20'
says 'ended with'

run all all-kill "" 3 wait
[ "$code" != 0 ] || fail "the job lives"
touch -d '1 minute ago' "$folder/run/lock" # the next start is on other hosts, and later
run all none "" -1
[ "$code" = 0 ] || fail "exit code $code"
says 'began at update 10'
[ "$(ended)" = "$whole" ] || fail "other bits than $whole"
echo "lost a rank (memory), a host (memory, 2 ranks), everything (disk): went on"
