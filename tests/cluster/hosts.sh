# Two hosts, which are namespaces of this machine: each has its own network, host name, /dev/shm and
# IPC, and TCP between them is real. To be sourced; needs root and iproute2.
#
#   make_hosts              makes host 1 and host 2, exits with 77 where that cannot be; they and
#                           their processes are gone when the shell that made them calls remove_hosts
#   enter 1|2 COMMAND...    becomes the command on that host
#
# A process that was started on a host may call enter, too: LOCKSTEP_HOSTS names the pair.
readonly address_of_hosts=10.77.0 # host N has this and .N

make_hosts() {
  export LOCKSTEP_HOSTS=lockstep-$$
  local n
  if ! { ip netns add "$LOCKSTEP_HOSTS-1" && ip netns add "$LOCKSTEP_HOSTS-2" &&
    ip link add eth0 netns "$LOCKSTEP_HOSTS-1" type veth peer name eth0 netns "$LOCKSTEP_HOSTS-2"; }; then
    echo "cannot make network namespaces (needs root and iproute2)" >&2
    exit 77
  fi
  for n in 1 2; do
    ip -n "$LOCKSTEP_HOSTS-$n" addr add "$address_of_hosts.$n/24" dev eth0 &&
      ip -n "$LOCKSTEP_HOSTS-$n" link set eth0 up &&
      ip -n "$LOCKSTEP_HOSTS-$n" link set lo up || exit 77
  done
}

enter() {
  local host=$LOCKSTEP_HOSTS-$1
  shift
  exec nsenter --net="/run/netns/$host" -- unshare --uts --ipc --mount -- bash -c '
    hostname "$1"
    mount --make-rprivate / && mount -t tmpfs -o mode=1777 none /dev/shm
    shift
    exec "$@"' enter "$host" "$@"
}

# What mpirun asks of its plm_rsh_agent: [OPTION...] HOST COMMAND... A host that LOCKSTEP_HOSTS_GONE
# says is gone starts nothing.
enter_as_rsh() {
  while [ "${1#-}" != "$1" ]; do shift; done
  local host=${1##*.}
  shift
  [ "$host" = 1 ] || [ ! -e "${LOCKSTEP_HOSTS_GONE:-}" ] || exit 255
  enter "$host" sh -c "$*"
}

remove_hosts() {
  local n pids
  for n in 1 2; do
    pids=$(ip netns pids "$LOCKSTEP_HOSTS-$n" 2>/dev/null)
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null
    ip netns del "$LOCKSTEP_HOSTS-$n" 2>/dev/null
    rm -rf "${TMPDIR:-/tmp}/ompi.$LOCKSTEP_HOSTS-$n".* # session folders of a killed mpirun
  done
}
