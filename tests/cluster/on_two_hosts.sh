#!/bin/bash
# Runs a command on host 1 of the two hosts of hosts.sh; mpirun reaches host 2, which is 10.77.0.2.
#
#   on_two_hosts.sh FAULT FILE COMMAND...
#
# Once FILE is there: link-cut cuts the link between the hosts, link-healed cuts it for 3 s. node-kill
# kills all processes of host 2, lets it start no more, and removes what LOCKSTEP_HOSTS_MEMORY, a
# folder of snapshots in memory, has of it. all-kill kills all processes of both hosts and removes
# that folder. Any other FAULT does nothing.
# Exit code: the command's; 77 where namespaces cannot be made.
set -u
self=$(readlink -f "$0")
. "$(dirname "$self")/hosts.sh"

if [ "$1" = rsh ]; then # mpirun asks for a command on a host
  shift
  enter_as_rsh "$@"
fi

fault=$1
file=$2
shift 2
disturb() {
  while [ ! -e "$file" ]; do sleep 0.05; done
  case $fault in
  link-cut) ip -n "$LOCKSTEP_HOSTS-2" link set eth0 down ;;
  link-healed)
    ip -n "$LOCKSTEP_HOSTS-2" link set eth0 down
    sleep 3
    ip -n "$LOCKSTEP_HOSTS-2" link set eth0 up
    ;;
  node-kill)
    touch "$LOCKSTEP_HOSTS_GONE"
    kill -9 $(ip netns pids "$LOCKSTEP_HOSTS-2")
    rm -rf "$LOCKSTEP_HOSTS_MEMORY"/*/*-"$LOCKSTEP_HOSTS-2"
    ;;
  all-kill)
    kill -9 $(ip netns pids "$LOCKSTEP_HOSTS-1") $(ip netns pids "$LOCKSTEP_HOSTS-2")
    rm -rf "$LOCKSTEP_HOSTS_MEMORY"
    ;;
  esac
}

make_hosts
export LOCKSTEP_HOSTS_GONE=/tmp/$LOCKSTEP_HOSTS.gone
disturb &
trap 'kill $! 2>/dev/null; remove_hosts; rm -f "$LOCKSTEP_HOSTS_GONE"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent="$self rsh" PRTE_MCA_plm_ssh_agent="$self rsh" # Open MPI 4, 5
(enter 1 "$@")
