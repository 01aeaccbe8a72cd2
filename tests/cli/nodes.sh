#!/bin/sh
# nodes.sh GSEL: `gsel run --nodes`: a job with ranks on two hosts (support/hosts.sh), started once on each. Every result of
# `gsel bench` is checked there.
set -eu
gsel=$1
. "$(dirname "$0")/../support/hosts.sh"
work=$(mktemp -d)
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
  echo "$*" >&2
  exit 1
}
refused() { # TEXT ARGUMENTS...
  text=$1
  shift
  if "$gsel" run "$@" -- true 2> "$work/err"; then fail "gsel run $* was taken"; fi
  grep -qF -- "$text" "$work/err" || fail "gsel run $*: expected \"$text\", got: $(cat "$work/err")"
}

head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
unset GSEL_TOKEN_FILE
refused "needs --node-rank as well" -n 2 --nodes 2
refused "0 to 1 are needed" -n 2 --nodes 2 --node-rank 2
refused "needs --rendezvous tcp://HOST:PORT" -n 2 --nodes 2 --node-rank 0
refused "GSEL_TOKEN_FILE is not set" -n 2 --nodes 2 --node-rank 0 --rendezvous tcp://127.0.0.1:1
refused "this command is the launcher" -n 2 --nodes 2 --node-rank 0 --rendezvous env://
refused "1 to 65536 are needed" -n 2 --nodes 0
refused "at most 64 of printable ASCII" -n 2 --job "a name"
export GSEL_TOKEN_FILE="$work/token"

# What stands in the environment of each rank.
"$gsel" run -n 2 --nodes 3 --node-rank 1 --rendezvous tcp://10.0.0.1:29500 --job run7 -- \
  sh -c 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT $GSEL_RENDEZVOUS $GSEL_JOB_NAME"' |
  sort > "$work/ranks"
printf '%s\n' "2/6 0/2 1 10.0.0.1 29500 tcp://10.0.0.1:29500 run7" "3/6 1/2 1 10.0.0.1 29500 tcp://10.0.0.1:29500 run7" |
  cmp - "$work/ranks" || fail "the ranks of node 1 found: $(cat "$work/ranks")"
(
  unset GSEL_TOKEN_FILE # which rank 0 writes into the file
  "$gsel" run -n 1 --nodes 2 --node-rank 1 --rendezvous "file://$work/place" -- \
    sh -c 'echo "$RANK/$WORLD_SIZE ${MASTER_ADDR-none} $GSEL_RENDEZVOUS"' > "$work/ranks"
)
echo "1/2 none file://$work/place" | cmp - "$work/ranks" || fail "the rank of node 1 found: $(cat "$work/ranks")"
# A rank that fails is told by its number in the job.
if "$gsel" run -n 2 --nodes 3 --node-rank 2 --rendezvous tcp://10.0.0.1:29500 --json "$work/end.json" -- sh -c '[ $RANK = 4 ] || exit 3' \
  2> "$work/err"; then fail "a rank that fails was taken"; fi
grep -q "rank 5 (pid [0-9]*) exited with status 3" "$work/err" || fail "of rank 5: $(cat "$work/err")"
[ "$(sed -n 's/^ *"rank": //p; s/^ *"world_size": //p' "$work/end.json" | tr -d '\n')" = 6,4,5, ] ||
  fail "ranks of node 2: $(cat "$work/end.json")"

"$gsel" plugins | grep -q gloo || {
  echo "left out: ranks on two hosts, since this build has no transport between them (libgloo-dev)"
  exit 77
}
hosts_make node0 node1 "$work"
port=29500
[ $hosts_are = namespaces ] || port=$((20000 + $$ % 10000))
place=tcp://$hosts_address:$port
job() { # COMMAND...: two ranks on each host
  hosts_on node1 "$gsel" run -n 2 --nodes 2 --node-rank 1 --rendezvous "$place" -- "$@" > "$work/1" 2>&1 &
  other=$!
  status=0
  hosts_on node0 "$gsel" run -n 2 --nodes 2 --node-rank 0 --rendezvous "$place" -- "$@" > "$work/0" 2>&1 || status=$?
  wait "$other" || status=$?
}
job "$gsel" bench all -b 8 -e 128K -f 16 --time 0.01 --joined
[ "$status" = 0 ] || fail "gsel bench on two hosts: status $status: $(cat "$work/0" "$work/1")"
rows=$(awk '/ f32 | barrier / { n += 1; wrong += $NF != 0 } END { print n, wrong + 0 }' "$work/0")
case $rows in
  "0 "* | *" "[1-9]*) fail "gsel bench on two hosts: rows and wrong ones: $rows: $(cat "$work/0")" ;;
esac

# The hosts see one folder.
place=file://$work/place
job "$gsel" bench allreduce -b 8 -e 8 --time 0.01 --joined
[ "$status" = 0 ] || fail "gsel bench on two hosts that meet by a file: status $status: $(cat "$work/0" "$work/1")"
ls "$work"/place* 2> /dev/null && fail "rank 0 left its file"

# A rank that is killed ends the job on both hosts, and both name it.
job sh -c '[ $RANK = 3 ] && (sleep 1; kill -9 $$) & exec '"$gsel"' bench allreduce -b 8 -e 8 --iterations 1000000 --joined'
[ "$status" != 0 ] || fail "a job with a killed rank: status 0"
grep -q "rank 3 .*ended without gsel_comm_free" "$work/0" || fail "what the first host said: $(cat "$work/0")"
grep -q "rank 3 (pid [0-9]*) was killed by signal 9" "$work/1" || fail "what the second host said: $(cat "$work/1")"

# A launcher that is killed takes its ranks with it, and the other host hears of them.
job sh -c '[ $RANK = 2 ] && { launcher=$PPID; (sleep 1; kill -9 $launcher) & } ; exec '"$gsel"' bench allreduce -b 8 -e 8 --iterations 1000000 --joined'
[ "$status" != 0 ] || fail "a job with a killed launcher: status 0"
grep -q "rank [23] .*ended without gsel_comm_free" "$work/0" || fail "what the first host said: $(cat "$work/0")"
[ $hosts_are = namespaces ] || {
  echo "left out: a host that falls silent, since network namespaces are not to be had here"
  exit 0
}

# A host that falls silent is named on either side, by the first of its ranks.
(
  sleep 3
  hosts_inside 1 ip link set eth0 down
) &
export GSEL_HOST_TIMEOUT=1
began=$(date +%s)
job "$gsel" bench allreduce -b 8 -e 8 --iterations 1000000 --joined
took=$(($(date +%s) - began))
[ "$status" != 0 ] || fail "a job whose hosts lose each other: status 0"
grep -q "rank 2 on node1 is silent for 1 s" "$work/0" || fail "what the first host said: $(cat "$work/0")"
grep -q "rank 0 on node0 is silent for 1 s" "$work/1" || fail "what the second host said: $(cat "$work/1")"
echo "hosts that lose each other 3 s after the start: ended after $took s"
