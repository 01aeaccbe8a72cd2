#!/bin/sh
# between_none.sh BUILD: an installation that has transports of MPI and no gloo, and ranks that no launcher of an MPI has
# started: `auto` takes neither, every rank is told what is missing, and one that is named is refused as a world of one.
set -eu
build=$1 work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/bin" "$work/lib/gsel/plugins-1"
cp "$build/bin/gsel" "$work/bin"
cp -P "$build"/lib/libgsel.so* "$work/lib"
for name in mpi_openmpi mpi_mpich; do
  [ ! -e "$build/lib/gsel/plugins-1/$name.so" ] || cp "$build/lib/gsel/plugins-1/$name.so" "$work/lib/gsel/plugins-1"
done
ls "$work/lib/gsel/plugins-1" | grep -q mpi_openmpi || { echo "no transport mpi_openmpi in this build"; exit 77; }
chmod -R go-w "$work"
export LD_LIBRARY_PATH="$work/lib" GSEL_RENDEZVOUS="file://$work/place" GSEL_CONFIG="$work/gsel.toml"
unset GSEL_PLUGIN_PATH
ranks() { # TRANSPORT: two ranks on two hosts; their outputs in $work/0 and $work/1
  printf '[comm]\ntransport = "%s"\n' "$1" > "$work/gsel.toml"
  for rank in 0 1; do
    (! GSEL_HOST_ID=h$rank RANK=$rank WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 timeout 60 "$work/bin/gsel" bench allreduce \
      -b 8K -e 8K --time 0.01 --joined > "$work/$rank" 2>&1) &
    pids="${pids-} $!"
  done
  for pid in $pids; do wait "$pid" || { echo "a rank joined over $1"; exit 1; }; done
  pids=
}
expect() { # TEXT
  for rank in 0 1; do
    grep -q -- "$1" "$work/$rank" || { echo "rank $rank: expected: $1"; cat "$work/$rank"; exit 1; }
  done
}
ranks auto
expect "mpi_openmpi: no launcher of its MPI has started this process; start the ranks by mpirun, or name this transport"
expect "the plugin gloo needs no launcher (it is built where libgloo-dev is), and mpirun brings an MPI"
ranks mpi_openmpi
expect "the communicator has 2 ranks and the world of MPI 1 rank; start them by the mpirun of Open MPI"
