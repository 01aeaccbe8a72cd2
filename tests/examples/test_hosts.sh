#!/bin/sh
# test_hosts.sh BIN SOURCE [few]: the GPT example on two hosts with two ranks each trains the parameters that four ranks on one
# host train, hash by hash, whatever travels between the hosts: sums, gathered parameters, values of layers, messages of a
# pipeline. The hosts are one machine, whose ranks are told that they are on two.
set -eu
bin=$1
source=$2
strategies="ddp zero3 pp-tp-zero1 cp-ring"
[ "${3-}" != few ] || strategies="pp-tp-zero1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OPENBLAS_NUM_THREADS=1
cat "$source"/docs/*.md > "$work/text"
head -c 32 /dev/urandom > "$work/token"
chmod 600 "$work/token"
fail() {
  echo "test_hosts.sh: $*" >&2
  exit 1
}
"$bin/gsel" plugins | grep -q gloo || {
  echo "left out: ranks on two hosts, since this build has no transport between them (libgloo-dev)"
  exit 77
}

# run NAME OPTIONS...: of gsel run; leaves NAME.json
run() {
  name=$1
  shift
  "$bin/gsel" run "$@" --config "$work/$strategy.toml" -- "$bin/gpt" --data "$work/text" --steps 2 --quiet \
    --attention "$attention" --json "$work/$name.json" > "$work/$name.out" 2>&1 ||
    fail "$strategy, $name: $(cat "$work/$name.out")"
}
node() { # NUMBER: the ranks of one host
  GSEL_HOST_ID=node$1 GSEL_TOKEN_FILE="$work/token" run "hosts$1" -n 2 --nodes 2 --node-rank "$1" --rendezvous "$place"
}
hashes() {
  sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json"
}

port=$((20000 + $$ % 10000))
for strategy in $strategies; do
  attention=whole
  case $strategy in *-ring) attention=ring ;; esac
  sed 's/^batch *=.*/batch = 4/; s/^microbatches *=.*/microbatches = 2/' "$source/examples/gpt/strategies/$strategy.toml" \
    > "$work/$strategy.toml"
  run one -n 4
  port=$((port + 1))
  place=tcp://127.0.0.1:$port
  rm -f "$work/hosts0.json"
  (node 1) &
  other=$!
  node 0
  wait $other || fail "$strategy on the second host failed"
  [ "$(hashes one | wc -l)" = 4 ] || fail "$strategy: no hash of four ranks in $(cat "$work/one.json")"
  [ "$(hashes one)" = "$(hashes hosts0)" ] || fail "$strategy: one host trained $(hashes one), two hosts $(hashes hosts0)"
  echo "$strategy: two hosts trained the parameters of one"
done

# The same where one command starts the ranks of both, through a remote shell that stays here.
printf '#!/bin/sh\nGSEL_HOST_ID=$1\nexport GSEL_HOST_ID\nshift\nexec "$@"\n' > "$work/enter"
chmod +x "$work/enter"
run shell --hosts a:2,b:2 --rsh "$work/enter" --rendezvous tcp://127.0.0.1:$((port + 1))
[ "$(hashes one)" = "$(hashes shell)" ] || fail "$strategy: one host trained $(hashes one), those of --hosts $(hashes shell)"
echo "$strategy: hosts that one command reaches trained the parameters of one"
