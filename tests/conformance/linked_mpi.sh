#!/bin/sh
# linked_mpi.sh LAUNCHER PROGRAM: all that linked_mpi.c tries, on three ranks (exhausted: on two). 77: this launcher is not here.
set -eu
command -v "$1" > /dev/null || { echo "no $1 here, so its MPI is not tried"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export GSEL_RENDEZVOUS="file://$work/place"
for tries in multiple serialized single finalised interface exhausted; do
  ranks=3
  [ $tries != exhausted ] || ranks=2 # thousands of collective calls, in which ranks of MPICH spin
  timeout 120 "$1" -n $ranks "$2" $tries > "$work/out" 2>&1 && grep -q "MPI is the program's" "$work/out" || {
    echo "$tries:"
    cat "$work/out"
    exit 1
  }
done
