#!/bin/bash
# Trains until it is done, however often Slurm ends it: docs/slurm.md.
#   sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 slurm_job.sh build/examples/03_fashion_mnist --snapshots DIR
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@180

# With --kill-on-bad-exit=1 the first rank that leaves with 75 would have the others killed.
srun --mpi=pmix --kill-on-bad-exit=0 "$@"
code=$?
if [ "$code" = 75 ]; then # saved after a stop signal: start me again
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
