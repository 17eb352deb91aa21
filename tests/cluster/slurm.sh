#!/bin/bash
# One test on a Slurm cluster of two nodes (slurm_cluster.sh).
#   slurm.sh TEST PROGRAM [ARGUMENT...]
#   slurm.sh stops_and_preemptions COUNT SCRIPT PROGRAM [ARGUMENT...]   50 is the long form, by hand
# Exit code: 0; 77 where there can be no cluster; else the test failed and says why.
set -u
. "$(dirname "$(readlink -f "$0")")/slurm_cluster.sh"

fail() {
  printf 'failed: %s\n' "$@" >&2
  exit 1
}

says() { grep -q -- "$1" "$out" || fail "the output does not say '$1':" "$(cat "$out")"; }

# A test program of four ranks, two on each node.
test_four_ranks_on_two_nodes() {
  export LOCKSTEP_TEST_RANKS=4 LOCKSTEP_TEST_NODES=2
  on_cluster srun --mpi=pmix --nodes=2 --ntasks=4 --ntasks-per-node=2 "$@"
}

# mpirun finds the nodes of its job; what Slurm says of tasks then is about mpirun's own daemons.
test_mpirun_inside_a_job() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  on_cluster salloc --nodes=2 --ntasks-per-node=2 "$1" --bind-to none "$2" size >"$out" 2>&1 ||
    fail "$(cat "$out")"
  says 'rank 3 of 4 by mpi'
}

# A job script that forgets srun: not a training of one rank on the nodes of many.
test_a_program_that_nothing_started_is_refused() {
  on_cluster salloc --nodes=2 --ntasks=2 "$@" size >"$out" 2>&1
  local code=$?
  [ "$code" = 3 ] || fail "the exit code is $code: $(cat "$out")"
  says 'this Slurm job has 2 tasks'
  on_cluster salloc --nodes=2 --ntasks=2 srun --mpi=pmix "$@" size >"$out" 2>&1 ||
    fail "$(cat "$out")"
  says 'rank 1 of 2 by mpi'
  on_cluster salloc --nodes=2 --ntasks=2 srun -n 1 "$@" size >"$out" 2>&1 || fail "$(cat "$out")"
  says 'rank 0 of 1 by solo'
}

# srun that starts tasks which MPI cannot join: not two trainings of one rank each.
test_tasks_without_pmix_are_refused() {
  on_cluster srun --mpi=none --nodes=2 --ntasks=2 "$@" size >"$out" 2>&1
  local code=$?
  [ "$code" = 3 ] || fail "the exit code is $code: $(cat "$out")"
  says 'rank 0: srun started 2 tasks'
  says 'rank 1: srun started 2 tasks'
  says 'srun --mpi=pmix'
}

# The rank that is left must not wait for the one that is gone.
test_a_killed_rank_ends_the_step() {
  on_cluster timeout 60 srun --mpi=pmix --kill-on-bad-exit=1 --nodes=2 --ntasks=2 "$@" kill >"$out" 2>&1
  local code=$?
  [ "$code" != 0 ] && [ "$code" != 124 ] || fail "the exit code is $code: $(cat "$out")"
  says 'node2: task 1: Killed'
}

# The peer of the rank that throws waits in a collective of the closure, on the other node.
test_an_exception_in_a_closure_ends_both_ranks() {
  on_cluster timeout 120 srun --mpi=pmix --nodes=2 --ntasks=2 "$@" closure "$state" >"$out" 2>&1
  local code=$?
  [ "$code" = 10 ] || fail "the exit code is $code: $(cat "$out")"
  says 'rank 0: .*sample 17 is damaged'
  says 'rank 1: .*sample 17 is damaged'
}

job_says() { grep -q -- "$1" "$state/job.out" 2>/dev/null; }
job_restarts() { on_cluster scontrol show job "$job" | grep -o 'Restarts=[0-9]*'; }

# The job script of the manual: asked to end, the job saves, is queued again and goes on.
test_a_stopped_job_is_requeued_and_resumes() {
  local job_script=$1
  shift
  local job
  job=$(on_cluster sbatch --parsable --nodes=2 --ntasks-per-node=1 \
    --output="$state/job.out" --chdir="$state" "$job_script" "$@" \
    --snapshots "$state/snapshots") || fail "sbatch failed"
  wait_until job_says ' it/s' || fail "no update was made: $(cat "$state/job.out")"
  on_cluster scancel --signal=TERM "$job"
  wait_until job_says 'resumed at update' ||
    fail "not resumed: $(cat "$state/job.out"; on_cluster scontrol show job "$job")"
  [ "$(job_restarts)" = Restarts=1 ] || fail "$(job_restarts)"
  on_cluster scancel "$job"
}

# How often the job has been resumed, and whether it has trained since then.
resumes() { grep -ac 'resumed at update' "$state/job.out" 2>/dev/null; }
trains_after_resume() {
  [ "$(resumes)" = "$1" ] &&
    tac "$state/job.out" | sed '/resumed at update/,$d' | grep -aq ' it/s'
}

# A job that is asked to end (odd rounds), or makes room for another (even rounds), is never lost.
test_stops_and_preemptions() {
  local count=$1 job_script=$2
  shift 2
  local job round update=0 before
  job=$(on_cluster sbatch --parsable --nodes=2 --ntasks-per-node=1 \
    --output="$state/job.out" --chdir="$state" "$job_script" "$@" \
    --snapshots "$state/snapshots") || fail "sbatch failed"
  wait_until job_says ' it/s' || fail "no update was made: $(cat "$state/job.out")"
  for round in $(seq "$count"); do
    if [ $((round % 2)) = 1 ]; then
      on_cluster scancel --signal=TERM "$job"
    else
      on_cluster sbatch --quiet --partition=first --nodes=2 --ntasks-per-node=4 --output=/dev/null \
        --chdir="$state" --wrap 'true' || fail "sbatch failed"
    fi
    wait_until trains_after_resume "$round" ||
      fail "lost at stop $round: $(tail -n 40 "$state/job.out" | tr -d '\0'; on_cluster scontrol show jobs)"
    before=$update
    update=$(grep -ao 'resumed at update [0-9]*' "$state/job.out" | tail -n 1 | grep -o '[0-9]*$')
    [ "$update" -gt "$before" ] ||
      fail "stop $round: resumed at update $update, the one before at $before"
    echo "stop $round: resumed at update $update"
  done
  [ "$(job_restarts)" = "Restarts=$count" ] || fail "$(job_restarts)"
  on_cluster scancel "$job"
  echo "$count stops and preemptions, 0 lost"
}

test=$1
shift
export OMP_NUM_THREADS=1
start_cluster
out=$state/out
"test_$test" "$@"
