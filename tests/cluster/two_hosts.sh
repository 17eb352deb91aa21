#!/bin/bash
# Runs a test program by mpirun on the two hosts of hosts.sh.
#
#   two_hosts.sh MPIEXEC LAYOUT... -- PROGRAM ARGS...     LAYOUT: ranks on each host, such as 2+1
#
# Exit code: that of the first run that fails; 77 where namespaces cannot be made.
set -u
self=$(readlink -f "$0")
. "$(dirname "$self")/hosts.sh"

if [ "${1:-}" = rsh ]; then # mpirun asks for a command on a host
  shift
  enter_as_rsh "$@"
fi

mpiexec=$1
shift
layouts=()
while [ "$1" != -- ]; do
  layouts+=("$1")
  shift
done
shift

trap remove_hosts EXIT
make_hosts

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export LOCKSTEP_TEST_NODES=2
for layout in "${layouts[@]}"; do
  first=${layout%+*}
  second=${layout#*+}
  export LOCKSTEP_TEST_RANKS=$((first + second))
  echo "== $layout ranks on two hosts"
  (enter 1 "$mpiexec" --bind-to none --mca plm_rsh_agent "$self rsh" \
    -x LOCKSTEP_TEST_NODES -x LOCKSTEP_TEST_RANKS -x OMP_NUM_THREADS \
    --host "$address_of_hosts.1:$first,$address_of_hosts.2:$second" \
    -np "$LOCKSTEP_TEST_RANKS" "$@") || exit $?
done
