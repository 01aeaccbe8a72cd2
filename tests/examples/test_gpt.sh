#!/bin/sh
# test_gpt.sh BIN SOURCE: the GPT example, three steps of four samples: gsel on one rank trains the very parameters that
# the loop by hand trains; on two ranks every strategy trains the same ones, sends the gradients its closed form says, and
# lets the model write. What rounds gradients comes to others, near by; so do pipelines, which sum in another order.
set -eu
bin=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OPENBLAS_NUM_THREADS=1
cat "$source"/docs/*.md > "$work/text"

fail() {
  echo "test_gpt.sh: $*" >&2
  exit 1
}
# train RANKS STRATEGY: leaves STRATEGY.json and, on two ranks, the text the model wrote in STRATEGY.out.
train() {
  sed 's/^batch *=.*/batch = 4/; s/^microbatches *=.*/microbatches = 2/' "$source/examples/gpt/strategies/$2.toml" > "$work/$2.toml"
  "$bin/gsel" run -n "$1" --config "$work/$2.toml" -- "$bin/gpt" --data "$work/text" --steps 3 --quiet \
    --json "$work/$2.json" --sample 8 > "$work/$2.out" || fail "$2 on $1 rank(s) failed"
  sed -i '1,/^---/d' "$work/$2.out"
}
hashes() {
  sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json" | sort -u
}

train 1 ddp
"$bin/gpt-by-hand" "$work/ddp.toml" "$work/text" 3 "$work/hand.json" > /dev/null || fail "gpt-by-hand failed"
[ "$(hashes ddp)" = "$(hashes hand)" ] || fail "one rank: expected the parameters of gpt-by-hand, $(hashes hand), got $(hashes ddp)"
mv "$work/ddp.json" "$work/one.json"

train 2 ddp
expected=$(hashes ddp)
[ -s "$work/ddp.out" ] || fail "the model wrote nothing"
for strategy in dp recompute zero1 zero2 zero3 zero3-offload; do
  train 2 "$strategy"
  [ "$(hashes "$strategy")" = "$expected" ] || fail "$strategy: expected the parameters of ddp, $expected, got $(hashes "$strategy")"
  cmp -s "$work/ddp.out" "$work/$strategy.out" || fail "$strategy: the model writes another text than under ddp"
  "$bin/gpt-compare" "$work/one.json" "$work/$strategy.json" > "$work/compared" ||
    fail "$strategy against one rank: $(cat "$work/compared")"
done
for strategy in pp-1f1b pp-interleaved pp-zb-h1 pp-zb-v pp-ddp pp-zero1; do
  case $strategy in
    pp-ddp | pp-zero1) train 4 "$strategy" ;;
    *) train 2 "$strategy" ;;
  esac
  cmp -s "$work/ddp.out" "$work/$strategy.out" || fail "$strategy: the model writes another text than under ddp"
  "$bin/gpt-compare" "$work/one.json" "$work/$strategy.json" > "$work/compared" ||
    fail "$strategy against one rank: $(cat "$work/compared")"
done
train 2 ddp-bf16
[ "$(hashes ddp-bf16)" != "$expected" ] || fail "ddp-bf16: the parameters are those of ddp, so nothing was rounded"
"$bin/gpt-table" "$work/one.json" "$work/ddp.json" "$work/ddp-bf16.json" > /dev/null || fail "gpt-table"
