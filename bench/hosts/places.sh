#!/bin/sh
# places.sh BUILD RESULTS: gsel over gloo between two hosts, which are namespaces of this machine (two_hosts.sh, root), with
# four ranks in each of PLACES: "0011" are two consecutive ranks on each host, "0101" ranks that are dealt in turn, "0111"
# one rank and three; and again with a cable of RATE (1gbit) in each direction. Writes RESULTS/places.md. BEFORE may be another build, whose ranks take turns with these. ROUNDS,
# SECONDS_EACH, BYTES, OPERATIONS, PLACES and PRIORITY (a prefix such as "nice -n -20", where other work shares the machine)
# may be set.
set -eu
build=$(realpath "$1") results=$2
here=$(dirname "$0")
. "$here/two_hosts.sh"
begin_hosts
port=29800
seconds=${SECONDS_EACH:-0.2} rounds=${ROUNDS:-5} bytes=${BYTES:-65536,1048576,16777216} places=${PLACES:-0011 0101 0111}
operations=${OPERATIONS:-allreduce reduce_scatter allgather broadcast}
ranks() { # BIN PLACES OPTIONS...: a rank for each place
  bin=$1 all=$2
  shift 2
  port=$((port + 1)) rank=0 others=
  while [ $rank -lt ${#all} ]; do
    host=$(printf %s "$all" | cut -c $((rank + 1)))
    LD_LIBRARY_PATH=$bin/../lib RANK=$rank WORLD_SIZE=${#all} GSEL_RENDEZVOUS=tcp://10.77.1.1:$port timeout -k 5 120 \
      "$hosts_enter" "node$host" ${PRIORITY-} "$bin/bench_peer_gsel" --ranks ${#all} --pin 0 --seconds "$seconds" "$@" \
      > "$work/out$rank" 2> "$work/err$rank" &
    others="$others $!"
    rank=$((rank + 1))
  done
  for other in $others; do wait "$other"; done
}
samples() { # RATE
  for round in $(seq "$rounds"); do
    for operation in $operations; do
      for all in $places; do
        for build_of in ${BEFORE:+"$BEFORE"} "$build"; do
          name=after
          [ "$build_of" = "$build" ] || name=before
          ranks "$build_of/bin" "$all" --operation "$operation" --bytes "$bytes" --fewest 4 || {
            cat "$work"/err* >&2
            exit 1
          }
          awk -v rate="$1" -v name="$name" -v all="$all" 'NF == 9 { print $1, all, $3, name, $5, rate }' "$work/out0" >> "$work/samples"
        done
      done
    done
  done
}
samples none
rate=${RATE:-1gbit}
for number in 0 1; do
  hosts_inside $number tc qdisc add dev "$hosts_interface" root tbf rate "$rate" burst 128kb latency 200ms
done
samples "$rate"
mkdir -p "$results"
{
  echo "# Ranks in other places on two hosts"
  echo
  echo "Four ranks on two hosts, which are namespaces of one machine with a cable between them, by gloo; $(nproc) processors that"
  echo "all ranks and gloo's threads share. f32; sums in the order of ranks. \`0011\`: two consecutive ranks on each host, \`0101\`:"
  echo "ranks dealt in turn, \`0111\`: one and three. Microseconds a call: median of $rounds rounds' medians (least to most)."
  echo "Rate: of the cable, in each direction (tc tbf); none: what the machine can."
  [ -z "${BEFORE-}" ] || echo "${NOTE:-The library before a change and after it take turns.}"
  [ -z "${PRIORITY-}" ] || echo "The machine was not quiet: all ranks ran under \`$PRIORITY\`."
  echo "\`make bench-hosts\` writes this (bench/hosts/places.sh); on $(date -u +%F), load average $(cut -d ' ' -f 1 /proc/loadavg)."
  echo
  awk -v before="${BEFORE:+1}" '
    function median(key, n, i, j, t, a) {
      n = split(took[key], a, " ")
      for (i = 2; i <= n; ++i) for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; --j) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
      middle = a[int((n + 1) / 2)]
      return sprintf("%.0f (%.0f to %.0f)", middle, a[1], a[n])
    }
    { key = $6 " | " $1 " | " $2 " | " $3; if (!(key in seen)) { seen[key] = 1; keys[++count] = key } took[key " " $4] = took[key " " $4] " " $5 }
    END {
      print before ? "| rate | operation | places | bytes | before | after | after / before |\n|---|---|---|--:|--:|--:|--:|" : "| rate | operation | places | bytes | gsel |\n|---|---|---|--:|--:|"
      for (k = 1; k <= count; ++k) {
        after = median(keys[k] " after"); b = middle
        if (before) { first = median(keys[k] " before"); printf "| %s | %s | %s | %.2f |\n", keys[k], first, after, b / middle }
        else printf "| %s | %s |\n", keys[k], after
      }
    }' "$work/samples"
} > "$results/places.md"
echo "gsel: wrote $results/places.md"
