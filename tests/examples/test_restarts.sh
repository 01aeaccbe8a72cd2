#!/bin/sh
# test_restarts.sh BIN SOURCE: the GPT example with --checkpoints. A rank is killed after a save; `gsel run --restarts` starts
# all again, and they end with the parameters of a run that nobody stopped, also where other ranks and another strategy go on.
set -eu
bin=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OPENBLAS_NUM_THREADS=1
head -c 60000 "$source/docs/communicator.md" > "$work/text"
steps=60

fail() {
  echo "test_restarts.sh: $*" >&2
  exit 1
}
hashes() {
  sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json" | sort -u
}
# Before gpt: on the first start it has many more steps to go, and rank 1 is killed when a checkpoint is on the disk.
cat > "$work/killed" << 'TEXT'
#!/bin/sh
[ "$GSEL_RESTART_COUNT" = 0 ] || exec "$@"
[ "$RANK" = 1 ] || exec "$@" --steps 1000000
"$@" --steps 1000000 &
until [ -e "$SAVED" ]; do kill -0 $! || exit 1; sleep 0.01; done
kill -9 $!
wait $!
TEXT
chmod +x "$work/killed"
# train NAME STRATEGY STEPS [FOLDER]: on two ranks. `before` stands before the program, which may fail `restarts` times.
before='' restarts=0
train() {
  sed 's/^batch *=.*/batch = 4/; s/^microbatches *=.*/microbatches = 2/' "$source/examples/gpt/strategies/$2.toml" > "$work/$2.toml"
  # shellcheck disable=SC2086
  timeout 100 "$bin/gsel" run -n 2 --config "$work/$2.toml" --restarts $restarts -- $before "$bin/gpt" --data "$work/text" \
    --quiet --layers 2 --width 128 --heads 4 --context 64 --steps "$3" ${4:+--checkpoints "$4" --save-every 4} \
    --json "$work/$1.json" > "$work/$1.out" 2>&1 || fail "$1: $(cat "$work/$1.out")"
}
# goes_on NAME STEPS: its last start began in the middle.
goes_on() {
  from=$(sed -n 's/.*goes on after step \([0-9]*\) of .*/\1/p' "$work/$1.out")
  [ -n "$from" ] && [ "$from" -gt 0 ] && [ "$from" -lt "$2" ] || fail "$1: expected that it goes on before step $2, got: $(cat "$work/$1.out")"
}

train plain ddp $steps
train longer ddp $((steps + 6))
for strategy in ddp zero3; do
  export SAVED="$work/$strategy/latest"
  before="$work/killed" restarts=1
  train $strategy-killed $strategy $steps "$work/$strategy"
  goes_on $strategy-killed $steps
  [ "$(hashes $strategy-killed)" = "$(hashes plain)" ] || fail "$strategy: a run that was killed has other parameters"
done
before='' restarts=0
train other zero3 $((steps + 6)) "$work/ddp"
goes_on other $((steps + 6))
[ "$(hashes other)" = "$(hashes longer)" ] || fail "zero3 after ddp: other parameters than those of ddp alone"
train done zero3 $((steps + 6)) "$work/ddp"
grep -q "trained 0 steps" "$work/done.out" || fail "a run that has all its steps: $(cat "$work/done.out")"
[ "$(hashes done)" = "$(hashes longer)" ] || fail "a run that has all its steps: other parameters"
names=$(cd "$work/ddp" && ls -d step-* latest | tr '\n' ' ')
[ "$names" = "latest step-000000000064 step-000000000066 " ] || fail "expected the last two checkpoints, got $names"
