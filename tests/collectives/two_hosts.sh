#!/bin/bash
# Runs a test program on two hosts, which are namespaces of this machine: each has its own network,
# host name, /dev/shm and IPC, and TCP between them is real. Needs root, iproute2 and Open MPI.
#
#   two_hosts.sh MPIEXEC LAYOUT... -- PROGRAM ARGS...     LAYOUT: ranks on each host, such as 2+1
#
# Exit code: that of the first run that fails; 77 where namespaces cannot be made.
set -u

host_of() { [ "$1" = "$address.1" ] && echo "$prefix-1" || echo "$prefix-2"; }

# Becomes a command on a host.
enter() {
  local host
  host=$(host_of "$1")
  shift
  exec nsenter --net="/run/netns/$host" -- unshare --uts --ipc --mount -- bash -c '
    hostname "$1"
    mount --make-rprivate / && mount -t tmpfs -o mode=1777 none /dev/shm
    shift
    exec "$@"' enter "$host" "$@"
}

address=10.77.0
if [ "${1:-}" = rsh ]; then # mpirun asks for a command on a host
  prefix=$LOCKSTEP_TWO_HOSTS
  shift
  while [ "${1#-}" != "$1" ]; do shift; done
  host=$1
  shift
  enter "$host" sh -c "$*"
fi

mpiexec=$1
shift
layouts=()
while [ "$1" != -- ]; do
  layouts+=("$1")
  shift
done
shift

prefix=lockstep-$$
export LOCKSTEP_TWO_HOSTS=$prefix
self=$(readlink -f "$0")

remove_hosts() {
  local host pids
  for host in "$prefix-1" "$prefix-2"; do
    pids=$(ip netns pids "$host" 2>/dev/null)
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null
    ip netns del "$host" 2>/dev/null
  done
}
trap remove_hosts EXIT

make_hosts() {
  local n
  ip netns add "$prefix-1" && ip netns add "$prefix-2" &&
    ip link add eth0 netns "$prefix-1" type veth peer name eth0 netns "$prefix-2" || return 1
  for n in 1 2; do
    ip -n "$prefix-$n" addr add "$address.$n/24" dev eth0 &&
      ip -n "$prefix-$n" link set eth0 up && ip -n "$prefix-$n" link set lo up || return 1
  done
}
if ! make_hosts; then
  echo "two_hosts.sh: cannot make network namespaces (needs root and iproute2)" >&2
  exit 77
fi

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export LOCKSTEP_TEST_NODES=2
for layout in "${layouts[@]}"; do
  first=${layout%+*}
  second=${layout#*+}
  export LOCKSTEP_TEST_RANKS=$((first + second))
  echo "== $layout ranks on two hosts"
  (enter "$address.1" "$mpiexec" --bind-to none --mca plm_rsh_agent "$self rsh" \
    -x LOCKSTEP_TEST_NODES -x LOCKSTEP_TEST_RANKS -x OMP_NUM_THREADS \
    --host "$address.1:$first,$address.2:$second" -np "$LOCKSTEP_TEST_RANKS" "$@") || exit $?
done
