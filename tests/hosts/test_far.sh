#!/bin/sh
# test_far.sh BIN RELAY SOURCE: ranks on two hosts between which each packet takes 20 ms, or one in a hundred is lost (it is
# counted): the results of collectives are right, and what is trained is what four ranks of one host train.
set -eu
bin=$1 source=$3
. "$(dirname "$0")/../support/hosts.sh"
hosts_relay=$2
work=$(mktemp -d)
trap 'hosts_remove; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
fail() {
  echo "test_far.sh: $*" >&2
  exit 1
}
"$bin/gsel" plugins | grep -q gloo || {
  echo "left out: ranks on two hosts, since this build has no transport between them (libgloo-dev)"
  exit 77
}
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
cat "$source"/docs/*.md > "$work/text"
sed 's/^batch *=.*/batch = 4/' "$source/examples/gpt/strategies/ddp.toml" > "$work/ddp.toml"
export OPENBLAS_NUM_THREADS=1 GSEL_CONFIG="$work/ddp.toml"
gpt() { # NAME: the options of a training that is recorded under it
  echo "$bin/gpt --data $work/text --steps 2 --layers 2 --width 32 --context 32 --quiet --json $work/$1.json"
}
hashes() { sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json"; }
"$bin/gsel" run -n 4 -- $(gpt near) > "$work/out" 2>&1 || fail "one host: $(cat "$work/out")"
[ "$(hashes near | wc -l)" = 4 ] || fail "no hash of four ranks in $(cat "$work/near.json")"

node() { # NUMBER COMMAND...
  number=$1
  shift
  GSEL_TOKEN_FILE="$work/token" hosts_on "node$number" "$bin/gsel" run -n 2 --nodes 2 --node-rank "$number" \
    --rendezvous "tcp://10.77.1.1:29500" -- "$@" > "$work/$number" 2>&1
}
job() {
  node 1 "$@" &
  other=$!
  node 0 "$@" || fail "$setting: $*: $(cat "$work/0" "$work/1")"
  wait $other || fail "$setting: $*, the second host: $(cat "$work/1")"
}
for setting in "20 0" "1 1"; do
  rm -rf "$work/hosts"
  mkdir "$work/hosts"
  # shellcheck disable=SC2086
  hosts_make node0 node1 "$work/hosts" $setting
  [ $hosts_are = namespaces ] || {
    echo "left out: ranks on hosts with delay and loss between them"
    exit 77
  }
  for operation in allreduce allgather; do
    job "$bin/gsel" bench $operation -b 8 -e 64K -f 128 --iterations 2 --joined
    rows=$(awk '/ f32 / { n += 1; wrong += $NF != 0 } END { print n, wrong + 0 }' "$work/0")
    case $rows in
      "0 "* | *" "[1-9]*) fail "$setting: rows and wrong ones: $rows: $(cat "$work/0")" ;;
    esac
  done
  # shellcheck disable=SC2046
  job $(gpt far)
  [ "$(hashes near)" = "$(hashes far)" ] || fail "$setting: one host trained $(hashes near), two $(hashes far)"
  relayed=$hosts_relay_end
  hosts_remove
  [ -z "$relayed" ] || cat "$work/hosts/relay.out"
  case $setting in
    *" 0") ;;
    *) [ -z "$relayed" ] || awk '{ lost += $4 } END { exit lost == 0 }' "$work/hosts/relay.out" || fail "nothing was lost" ;;
  esac
done
