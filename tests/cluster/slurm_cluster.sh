# A Slurm cluster on the two hosts of hosts.sh: node1 and node2, with four CPUs each as far as Slurm
# knows, and slurmctld on host 1. To be sourced.
#
#   start_cluster       exits with 77 where there is no Slurm with PMIx, or no hosts can be made
#   on_cluster CMD...   runs a client, such as srun, on host 1
#   stop_cluster        ends all jobs and daemons and removes the hosts
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/hosts.sh"

unset "${!SLURM_@}" # of a job that these tests may run in

slurm_configuration() {
  cat <<CONF
ClusterName=lockstep
SlurmctldHost=$LOCKSTEP_HOSTS-1($address_of_hosts.1)
SlurmUser=root
AuthInfo=socket=$state/munge.socket,cred_expire=5
StateSaveLocation=$state/controller
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdPidFile=$state/%n.pid
SlurmdLogFile=$state/%n.log
SlurmdSpoolDir=$state/%n
TmpFS=$state/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
NodeName=node1 NodeAddr=$address_of_hosts.1 CPUs=4
NodeName=node2 NodeAddr=$address_of_hosts.2 CPUs=4
PartitionName=all Nodes=node[1-2] Default=YES MaxTime=10 PriorityTier=1 GraceTime=60
PartitionName=first Nodes=node[1-2] MaxTime=10 PriorityTier=10 PreemptMode=OFF
CONF
}

# Waits up to 90 s until a command succeeds.
wait_until() {
  local try
  for try in $(seq 450); do
    "$@" && return
    sleep 0.2
  done
  return 1
}

on_cluster() { (enter 1 "$@"); }

nodes_are_idle() {
  [ "$(on_cluster sinfo --noheader --states idle --format %D 2>/dev/null)" = 2 ]
}

start_cluster() {
  local program
  for program in slurmctld slurmd srun munged; do
    if ! command -v "$program" >/dev/null; then
      echo "there is no $program: apt-get install slurmd slurmctld slurm-client munge" >&2
      exit 77
    fi
  done
  state=$(mktemp -d /tmp/lockstep-slurm.XXXXXX) # sockets want a short path
  trap stop_cluster EXIT
  make_hosts
  mkdir -p "$state"/{controller,node1/tmp,node2/tmp}
  export SLURM_CONF=$state/slurm.conf
  slurm_configuration >"$SLURM_CONF"
  printf 'CgroupPlugin=cgroup/v1\n' >"$state/cgroup.conf"
  (umask 077 && head -c 128 /dev/urandom >"$state/munge.key")
  munged --force --key-file="$state/munge.key" --socket="$state/munge.socket" \
    --pid-file="$state/munge.pid" --log-file="$state/munge.log" --seed-file="$state/munge.seed"
  (enter 1 slurmctld -i)
  (enter 1 slurmd -N node1)
  (enter 2 slurmd -N node2)
  if ! wait_until nodes_are_idle; then
    tail -n 20 "$state"/*.log >&2
    exit 1
  fi
  if ! on_cluster srun --mpi=list 2>&1 | grep -q pmix; then
    echo "this Slurm has no PMIx" >&2
    exit 77
  fi
}

stop_cluster() {
  local pid_file
  if [ -n "${SLURM_CONF:-}" ]; then
    on_cluster scancel --full --signal=KILL --state=RUNNING --partition=all 2>/dev/null
  fi
  for pid_file in "$state"/*.pid; do
    [ -f "$pid_file" ] && kill "$(cat "$pid_file")" 2>/dev/null
  done
  remove_hosts
  rm -rf "$state"
}
