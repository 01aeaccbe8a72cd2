#!/bin/sh
# between_mpi_refused.sh PROGRAM: what the transports of MPI do not take: ranks that no mpirun has started, each of which
# is a world of one for MPI, and the launcher of another implementation. Every rank is told. 77: not both are here.
set -eu
program=$1 here=$(dirname "$0") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for tool in mpirun.openmpi mpiexec.hydra; do
  command -v $tool > /dev/null || { echo "no $tool here, so refusals are not tried"; exit 77; }
done
expect() { # FILE COUNT TEXT
  n=$(grep -c -- "$3" "$work/$1" || :) # grep fails where it counts none
  [ "$n" -ge "$2" ] || { echo "expected $2 times: $3"; cat "$work/$1"; exit 1; }
}
GSEL_JOB=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export GSEL_JOB WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1
RANK=0 "$program" mpi_openmpi > "$work/first" 2>&1 &
! RANK=1 "$program" mpi_openmpi > "$work/second" 2>&1
! wait $!
for file in first second; do
  expect $file 1 "the communicator has 2 ranks and the world of MPI 1 rank; start them by the mpirun of Open MPI"
done
unset GSEL_JOB WORLD_SIZE MASTER_ADDR MASTER_PORT
! "$here/between_mpi.sh" mpi_mpich mpirun.openmpi "$program" > "$work/mpich" 2>&1
expect mpich 3 "the launcher is one of Open MPI"
! "$here/between_mpi.sh" mpi_openmpi mpiexec.hydra "$program" > "$work/openmpi" 2>&1
expect openmpi 3 "the launcher is one of MPICH"
