#!/bin/sh
# run.sh BUILD RESULTS: gsel between hosts beside its peers: one and two ranks on each of two hosts, which are namespaces of
# this machine with a cable between them (tests/support/hosts.sh), and again where each packet takes DELAY_MS (20). All peers
# run round by round in the same harness (bench/peers), so that a drift of the machine meets all of them; RESULTS/hosts.md
# gets medians over the rounds. Open MPI is told to yield while it waits, since it cannot know that its hosts are one. PCCL
# is brought by bench/peers/pccl/bring.sh. ROUNDS, SECONDS_EACH, EACH (ranks on a host), BYTES, OPERATIONS (other than
# allreduce, in BYTES_OTHER), DELAY_ROUNDS, DELAY_BYTES and PEERS may be set.
set -eu
build=$(realpath "$1") results=$2
bin=$build/bin
here=$(dirname "$0")
. "$here/two_hosts.sh"
seconds=${SECONDS_EACH:-0.2} each=${EACH:-1 2}
export BENCH_ADDRESS=10.77.1.1

limit() { timeout -k 5 120 "$@"; }
mpirun() { mpirun_on_hosts "$n" 1 "$@"; }
port=29600
node_of_job() { # NODE OPTIONS...
  node=$1
  shift
  limit "$hosts_enter" "node$node" "$bin/gsel" run -n "$n" --nodes 2 --node-rank "$node" --rendezvous tcp://10.77.1.1:$port -- \
    "$bin/bench_peer_gsel" "$@"
}
peer() { # NAME OPTIONS...
  name=$1
  shift
  port=$((port + 1))
  case $name in
    gsel-gloo)
      node_of_job 1 "$@" > "$work/other" 2>&1 &
      other=$!
      node_of_job 0 "$@"
      wait $other
      ;;
    gsel-openmpi)
      mpirun -x GSEL_TOKEN_FILE -x GSEL_INTERFACE -x GSEL_RENDEZVOUS=tcp://10.77.1.1:$port "$bin/bench_peer_gsel" "$@"
      ;;
    openmpi) mpirun --mca btl tcp,self,vader --mca pml ob1 "$bin/bench_peer_openmpi" "$@" ;;
    openmpi-han) mpirun --mca btl tcp,self,vader --mca pml ob1 --mca coll_han_priority 90 "$bin/bench_peer_openmpi" "$@" ;;
    gloo) BENCH_HOSTS=$networks limit "$bin/bench_peer_gloo" "$@" ;;
    pccl) BENCH_HOSTS=$networks limit "$build/pccl/run" "$bin/bench_peer_pccl" "$@" ;;
  esac
}
peers=${PEERS-}
[ -n "$peers" ] || {
  peers=gsel-gloo
  [ ! -x "$bin/bench_peer_openmpi" ] || peers="$peers gsel-openmpi openmpi openmpi-han"
  [ ! -x "$bin/bench_peer_gloo" ] || peers="$peers gloo"
  if "$here/../peers/pccl/bring.sh" "$build/pccl"; then peers="$peers pccl"; else echo "run.sh: goes on without PCCL" >&2; fi
}

begin_networks() { # [DELAY_MS]
  begin_hosts "$@"
  networks=/proc/${hosts_ends% *}/ns/net,/proc/${hosts_ends#* }/ns/net
}
samples() { # ROUND DELAY_MS OPERATION BYTES OPTIONS...: of all peers
  round=$1 delay=$2 operation=$3 sizes=$4
  shift 4
  for one in $peers; do
    [ "$operation" = allreduce ] || [ "$one" != pccl ] || continue
    peer "$one" --ranks $((2 * n)) --operation "$operation" --bytes "$sizes" --seconds "$seconds" --pin 0 "$@" \
      > "$work/out" 2> "$work/err" || echo "run.sh: $one $operation, round $round: $(tail -n 1 "$work/err")" >&2
    awk -v peer="$one" -v delay="$delay" 'NF == 9 { print delay, peer, $1, $2, $3, $5 }' "$work/out" >> "$work/samples"
  done
}
load() { cut -d ' ' -f 1 /proc/loadavg; }
loads=$(load)
begin_networks
for round in $(seq "${ROUNDS:-3}"); do
  for n in $each; do
    samples "$round" 0 allreduce "${BYTES:-8,1024,32768,65536,262144,1048576,4194304,16777216}" --fewest 6
    for operation in ${OPERATIONS-reduce_scatter allgather broadcast}; do
      samples "$round" 0 "$operation" "${BYTES_OTHER:-65536,1048576}"
    done
  done
done
hosts_remove
delay=${DELAY_MS:-20}
begin_networks "$delay"
for round in $(seq "${DELAY_ROUNDS:-3}"); do
  for n in $each; do
    samples "$round" "$delay" allreduce "${DELAY_BYTES:-8,65536,1048576,16777216}" --fewest 1
  done
done
loads="$loads to $(load)"
mkdir -p "$results"
"$here/table.py" "$work/samples" "${ROUNDS:-3}" "${DELAY_ROUNDS:-3}" "$loads" "$(date -u +%F)" $peers > "$work/hosts.md"
cp "$work/hosts.md" "$results/hosts.md"
echo "gsel: wrote $results/hosts.md"
