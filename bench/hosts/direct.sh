#!/bin/sh
# direct.sh BUILD RESULTS: gsel over an MPI beside that MPI itself, in one process (bench_direct.c), with one and with two
# ranks on each of two hosts, which are namespaces of this machine (two_hosts.sh, root). Writes RESULTS/direct.md.
# CASES: ranks on a host, "tree" behind it for sums in the order of a tree, in which Open MPI adds for the most part.
# ROUNDS, SECONDS_EACH, BYTES and PRIORITY (a prefix such as "nice -n -20", where other work shares the machine) may be set.
set -eu
build=$(realpath "$1") results=$2
rounds=${ROUNDS:-21} seconds=${SECONDS_EACH:-0.5}
LIMIT=${LIMIT:-500}
bytes=${BYTES:-8 64 512 1024 2048 4096 8192 16384 32768 65536 131072 262144 524288 1048576 2097152 4194304 8388608 16777216 33554432 67108864}
here=$(dirname "$0")
. "$here/two_hosts.sh"
begin_hosts
port=29700
for case in ${CASES:-1 2 2tree}; do
  each=${case%tree} order=ranks
  [ "$each" = "$case" ] || order=tree
  port=$((port + 1))
  export BENCH_ORDER=$order GSEL_RENDEZVOUS=tcp://10.77.1.1:$port
  mpirun_on_hosts "$each" $((each - 1)) --mca btl tcp,self,vader --mca pml ob1 -x GSEL_TOKEN_FILE -x GSEL_INTERFACE -x BENCH_ORDER \
    -x GSEL_RENDEZVOUS "$build/bin/bench_direct_openmpi" "$rounds" "$seconds" $bytes |
    sed "s/^/$((2 * each)) $order /" >> "$work/samples"
done
mkdir -p "$results"
{
  echo "# gsel over Open MPI beside Open MPI itself"
  echo
  echo "allreduce of f32, sum, in place: gsel_allreduce over the transport mpi and MPI_Allreduce, in blocks that take turns in one"
  echo "process, on two network namespaces of one machine with a cable between them; $(nproc) processors. Microseconds a call on"
  echo "the rank that takes longest: median of $rounds blocks (least to most). Two ranks: each has a processor. Four ranks share"
  echo "them, and Open MPI is told to yield. Order: in which gsel adds; MPI has its own. Within: gsel is at most 3 % and 1 us above MPI. bench/hosts/direct.sh writes this."
  [ -z "${PRIORITY-}" ] || printf '\nThe machine was not quiet: all ranks ran under `%s`.\n' "$PRIORITY"
  echo
  echo "| ranks | order | bytes | gsel | MPI | gsel - MPI | gsel / MPI | within |"
  echo "|--:|---|--:|--:|--:|--:|--:|---|"
  awk '{ printf "| %d | %s | %d | %.1f (%.1f to %.1f) | %.1f (%.1f to %.1f) | %.1f | %.2f | %s |\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $4 - $7,
         $4 / $7, $4 <= $7 * 1.03 + 1 ? "yes" : "no" }' "$work/samples"
} > "$results/direct.md"
echo "gsel: wrote $results/direct.md"
