#!/bin/sh
# run.sh BIN RESULTS: gsel between hosts beside its peers: one and two ranks on each of two hosts, which are network
# namespaces of this machine with a cable between them (namespaces.sh). All peers run round by round in the same harness
# (bench/peers), so that a drift of the machine meets all of them; RESULTS/hosts.md gets medians over the rounds. Open MPI
# is told to yield while it waits, since it cannot know that its hosts are one. ROUNDS, SECONDS_EACH, EACH (ranks on a
# host), OPERATIONS and BYTES may be set.
set -eu
bin=$(realpath "$1") results=$2
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-0.3}
operations=${OPERATIONS:-allreduce reduce_scatter allgather alltoall broadcast barrier}
bytes=${BYTES:-8,1024,32768,65536,262144,1048576,4194304,16777216}
each=${EACH:-1 2}
here=$(dirname "$0")
. "$here/namespaces.sh"
work=$(mktemp -d)
trap 'remove_hosts; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
make_hosts
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
export GSEL_TOKEN_FILE="$work/token" GSEL_INTERFACE=eth0

# How Open MPI starts its daemon on the other host: HOST COMMAND...
cat > "$work/enter" << EOF
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname node1 && exec sh -c "\$*"' sh "\$@"
EOF
chmod +x "$work/enter"
mpirun() {
  on 0 timeout -k 5 120 mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np $((2 * n)) \
    --host node0:$n,node1:$n --mca mpi_yield_when_idle 1 --mca plm_rsh_agent "$work/enter" --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "$@"
}
port=29600
gsel_run() { # TRANSPORT COMMAND...
  port=$((port + 1))
  place=tcp://$address_a:$port
  transport=$1
  shift
  export GSEL_TRANSPORT=$transport
  node_of_job() { on "$1" timeout -k 5 120 "$bin/gsel" run -n "$n" --nodes 2 --node-rank "$@"; }
  node_of_job 1 --rendezvous "$place" -- "$@" > "$work/other" 2>&1 &
  node_of_job 0 --rendezvous "$place" -- "$@"
  wait
}
peer() { # NAME COMMAND...
  name=$1
  shift
  case $name in
    gsel-gloo) gsel_run gloo "$bin/bench_peer_gsel" "$@" ;;
    gsel-openmpi)
      port=$((port + 1))
      mpirun -x GSEL_TOKEN_FILE -x GSEL_INTERFACE -x GSEL_TRANSPORT=mpi -x GSEL_RENDEZVOUS=tcp://$address_a:$port "$bin/bench_peer_gsel" \
        "$@"
      ;;
    openmpi) mpirun --mca btl tcp,self,vader --mca pml ob1 "$bin/bench_peer_openmpi" "$@" ;;
    openmpi-han) mpirun --mca btl tcp,self,vader --mca pml ob1 --mca coll_han_priority 90 "$bin/bench_peer_openmpi" "$@" ;;
    gloo) BENCH_HOSTS=$a,$b timeout -k 5 120 "$bin/bench_peer_gloo" "$@" ;;
  esac
}
peers=gsel-gloo
[ ! -x "$bin/bench_peer_openmpi" ] || peers="$peers gsel-openmpi openmpi openmpi-han"
[ ! -x "$bin/bench_peer_gloo" ] || peers="$peers gloo"

for round in $(seq "$rounds"); do
  for n in $each; do
    for operation in $operations; do
      sizes=$bytes
      [ "$operation" != barrier ] || sizes=0
      for one in $peers; do
        peer "$one" --ranks $((2 * n)) --operation "$operation" --bytes "$sizes" --seconds "$seconds" --pin 0 \
          > "$work/out" 2> "$work/err" || echo "$one $operation, round $round: $(tail -n 1 "$work/err")" >&2
        awk -v peer="$one" 'NF == 9 { print peer, $1, $2, $3, $5, $6 }' "$work/out" >> "$work/samples"
      done
    done
  done
done
mkdir -p "$results"
"$here/table.py" "$work/samples" "$rounds" $peers > "$results/hosts.md"
echo "gsel: wrote $results/hosts.md"
