#!/bin/bash
# Trains until it is done, however often Slurm ends it: docs/slurm.md.
#   sbatch --time=1:00:00 --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --cpus-per-task=8 srun.sh build/examples/03_fashion_mnist --snapshots DIR
# DIR, where the program saves, may also be in the variable SNAPSHOTS.
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@180

snapshots=${SNAPSHOTS:-}
for argument; do
  [ "${before:-}" != --snapshots ] || snapshots=$argument
  before=$argument
done
newest() { ls -d "$snapshots"/step-* 2>/dev/null | tail -n 1; }
newest_before=$(newest)

# srun takes no --cpus-per-task from sbatch. With --kill-on-bad-exit=1 the first rank that leaves
# with 75 would have the others killed.
srun --mpi=pmix --kill-on-bad-exit=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} "$@"
code=$?

# 75: saved after a stop signal. 143 and 137: srun had ranks killed, perhaps while they left.
case $code in
75) again=yes ;;
137 | 143) [ "$(newest)" = "$newest_before" ] || again=yes ;;
esac
[ -z "${again:-}" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
