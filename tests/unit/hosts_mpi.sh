#!/bin/sh
# hosts_mpi.sh LAUNCHER RANKS PROGRAM [TESTS]: a test of communicators over several hosts (tests/support/hosts.h), whose ranks
# LAUNCHER starts, and which go over its MPI; TESTS is a filter of cmocka. 77: this launcher is not here.
set -eu
launcher=$1 ranks=$2 program=$3
command -v "$launcher" > /dev/null || { echo "no $launcher here, so its MPI is not tried"; exit 77; }
GSEL_TEST_LAUNCHED=$(mktemp -d /tmp/gsel-mpi-XXXXXX)
trap 'rm -rf "$GSEL_TEST_LAUNCHED"' EXIT
export GSEL_TEST_LAUNCHED OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
[ -z "${4-}" ] || export GSEL_TEST_FILTER="$4"
"$launcher" -n "$ranks" "$program" > "$GSEL_TEST_LAUNCHED/out" 2>&1 || { status=$?; cat "$GSEL_TEST_LAUNCHED/out"; exit $status; }
grep -c '^\[ *OK' "$GSEL_TEST_LAUNCHED/out" | sed "s/$/ tests passed on the ranks of $launcher/"
grep -q '^\[  PASSED' "$GSEL_TEST_LAUNCHED/out"
