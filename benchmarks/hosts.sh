#!/bin/bash
# Runs a program on two hosts, which are namespaces of this machine, over a link of a limited rate.
# The ranks of a host share one core.
#
#   hosts.sh RATE RANKS_PER_HOST CORE CORE MPIEXEC [OPTION...] PROGRAM [ARGUMENT...]
#
# RATE is that of tc, such as 1gbit. Exit code: that of mpiexec; 77 where namespaces cannot be made
# (needs root, iproute2 and the queueing discipline tbf).
set -u
self=$(readlink -f "$0")
. "$(dirname "$self")/../tests/cluster/hosts.sh"

case $1 in
rsh) # mpirun asks for a command on a host
  shift
  enter_as_rsh "$@"
  ;;
rank) # mpirun starts a rank
  cores=("$3" "$4")
  export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
  core=${cores[$((RANK / $2))]}
  shift 4
  exec taskset -c "$core" "$@"
  ;;
esac

rate=$1
per_host=$2
first_core=$3
second_core=$4
shift 4
launcher=()
while :; do # the launcher and its options
  launcher+=("$1")
  shift
  case $1 in
  --bind-to) launcher+=("$1" "$2") && shift 2 && break ;;
  --*) ;;
  *) break ;;
  esac
done

trap remove_hosts EXIT
make_hosts
for host in 1 2; do
  tc -n "$LOCKSTEP_HOSTS-$host" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 10ms || exit 77
done
forwarded=()
for name in $(compgen -e | grep -E '^(LOCKSTEP_|OMP_NUM|MALLOC_|LD_PRELOAD|GLOO_)'); do
  forwarded+=(-x "$name")
done
(enter 1 "${launcher[@]}" --mca plm_rsh_agent "$self rsh" "${forwarded[@]}" \
  --host "$address_of_hosts.1:$per_host,$address_of_hosts.2:$per_host" -np $((2 * per_host)) \
  "$self" rank "$per_host" "$first_core" "$second_core" "$@")
