#!/bin/sh
# between_mpi.sh NAME LAUNCHER PROGRAM: the ranks of conformance_transport_between under a launcher of MPI, which need not
# know the job: gsel's own variable names it. 77: this launcher is not here.
set -eu
name=$1 launcher=$2 program=$3
command -v "$launcher" > /dev/null || { echo "no $launcher here, so the transport $name is not tried"; exit 77; }
GSEL_JOB=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export GSEL_JOB
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
  OMPI_MCA_mpi_yield_when_idle=1
exec "$launcher" -n "${4:-3}" "$program" "$name"
