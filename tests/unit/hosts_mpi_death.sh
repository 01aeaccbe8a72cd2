#!/bin/sh
# hosts_mpi_death.sh LAUNCHER RANKS PROGRAM TEST DEAD: the TEST of communicators over several hosts in which the ranks DEAD
# (such as 2,3) die, over the MPI of LAUNCHER, which is told to leave the others alone. 77: this launcher is not here.
set -eu
launcher=$1 ranks=$2 program=$3 dead=$5
command -v "$launcher" > /dev/null || { echo "no $launcher here, so its MPI is not tried"; exit 77; }
GSEL_TEST_LAUNCHED=$(mktemp -d /tmp/gsel-mpi-XXXXXX)
trap 'rm -rf "$GSEL_TEST_LAUNCHED"' EXIT
export GSEL_TEST_LAUNCHED GSEL_TEST_DEAD="$dead" GSEL_TEST_FILTER="$4"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
case $launcher in
  mpirun.openmpi) leave_alone="--enable-recovery --mca orte_abort_on_non_zero_status 0" ;;
  *) leave_alone=-disable-auto-cleanup ;;
esac
# The shell outlives its rank. MPICH's launcher sends SIGUSR1 to the others. The status is not that of the test, which the
# files of those who live say.
# shellcheck disable=SC2086
timeout 100 "$launcher" $leave_alone -n "$ranks" sh -c 'trap "" USR1; "$0"; exit 0' "$program" > "$GSEL_TEST_LAUNCHED/out" 2>&1 || echo "$launcher: status $?"
living=$((ranks - $(echo "$dead" | tr ',' '\n' | wc -l)))
passed=$(find "$GSEL_TEST_LAUNCHED" -name 'passed*' | wc -l)
[ "$passed" = $living ] || { echo "$passed ranks of $living went on without ranks $dead:"; cat "$GSEL_TEST_LAUNCHED/out"; exit 1; }
echo "$passed ranks went on without ranks $dead"
