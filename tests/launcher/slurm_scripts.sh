#!/bin/bash
# The job scripts of examples/slurm, with commands that only pretend to be Slurm's.
#   slurm_scripts.sh SCRIPT...
set -u
fail() {
  printf 'failed: %s\n' "$@" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/runs"
# The ranks: save a snapshot if asked, wait for a warning if asked, end with a code.
cat >"$folder/bin/ranks" <<'END'
#!/bin/bash
trap 'exit 75' TERM
[ -z "${SAVES:-}" ] || mkdir -p "$RUNS/step-000000000002"
[ -z "${WAITS:-}" ] || { touch "$RUNS/ready"; while :; do sleep 0.05; done; }
exit "$CODE"
END
printf '#!/bin/sh\necho "$@" >>"$RUNS/scontrol"\n' >"$folder/bin/scontrol"
chmod +x "$folder"/bin/*
ln -s ranks "$folder/bin/srun"
ln -s ranks "$folder/bin/lockstep"
export PATH=$folder/bin:$PATH RUNS=$folder/runs SLURM_JOB_ID=7 SLURM_NTASKS=2

# expect CODE SAVES requeued|ended: how the script must end a job whose ranks do so
expect() {
  rm -rf "$RUNS"
  mkdir -p "$RUNS/step-000000000001"
  CODE=$1 SAVES=$2 "$script" program --snapshots "$RUNS" >/dev/null
  local code=$? what=ended
  [ "$code" = "$1" ] || fail "$script: exit code $code instead of $1"
  [ ! -e "$RUNS/scontrol" ] || what=$(cat "$RUNS/scontrol")
  [ "$what" = "${3/requeued/requeue 7}" ] || fail "$script: code $1, saves '$2': $what instead of $3"
}

for script; do
  expect 0 yes ended
  expect 75 yes requeued
  expect 75 '' requeued # the snapshot of this update was saved before
  expect 143 yes requeued
  expect 137 yes requeued
  expect 143 '' ended
  expect 1 yes ended
  expect 20 yes ended
done

# The warning of a job by mpirun goes through the script and the launcher.
script=${!#}
rm -rf "$RUNS"
mkdir "$RUNS"
WAITS=yes SAVES=yes CODE=0 SNAPSHOTS=$RUNS "$script" program &
job=$!
while [ ! -e "$RUNS/ready" ]; do sleep 0.05; done
kill -USR1 "$job"
wait "$job"
[ $? = 75 ] || fail "a warned job did not end with 75"
[ "$(cat "$RUNS/scontrol")" = 'requeue 7' ] || fail "a warned job was not requeued"
