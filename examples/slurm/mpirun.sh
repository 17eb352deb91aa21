#!/bin/bash
# Trains until it is done, however often Slurm ends it: docs/slurm.md.
#   sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 mpirun.sh build/examples/03_fashion_mnist --snapshots DIR
# DIR, where the program saves, may also be in the variable SNAPSHOTS.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@180

snapshots=${SNAPSHOTS:-}
for argument; do
  [ "${before:-}" != --snapshots ] || snapshots=$argument
  before=$argument
done
newest() { ls -d "$snapshots"/step-* 2>/dev/null | tail -n 1; }
newest_before=$(newest)

# Slurm warns this script, and the launcher then asks the ranks to save and leave. A wait that the
# warning ends is repeated.
trap 'warned=yes; kill -TERM "$launcher"' USR1
lockstep run --ranks "$SLURM_NTASKS" --grace 150 -- "$@" &
launcher=$!
while
  warned=
  wait "$launcher"
  code=$?
  [ -n "$warned" ]
do :; done

# 75: saved after a stop signal. 143 and 137: ranks were killed, perhaps while they left.
case $code in
75) again=yes ;;
137 | 143) [ "$(newest)" = "$newest_before" ] || again=yes ;;
esac
[ -z "${again:-}" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
