#!/bin/sh
# test_gpt.sh BIN SOURCE [few]: the GPT example, three steps of four samples: gsel on one rank trains the very parameters that
# the loop by hand trains; on two ranks every strategy trains the same ones, sends the gradients its closed form says, and
# lets the model write. What rounds gradients comes to others, near by; so do pipelines and what divides layers, which sum
# in another order: the text they write is the same all the same. With `few`, for sanitizers, some strategies stand for all.
set -eu
bin=$1
source=$2
if [ "${3-}" = few ]; then
  same_sums="recompute zero3-offload" other_sums="pp-zb-v cp-ring pp-tp-zero1" small_runs="3-cp-ring"
else
  same_sums="dp recompute zero1 zero2 zero3 zero3-offload"
  other_sums="pp-1f1b pp-interleaved pp-zb-h1 pp-zb-v pp-ddp pp-zero1 tp tp-sp cp cp-ring tp-ddp tp-zero1 pp-tp pp-tp-zero1"
  small_runs="2-tp 3-tp-sp 3-cp 3-cp-ring 4-cp-ring"
fi
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
  attention=whole
  case $2 in *-ring) attention=ring ;; esac
  sed 's/^batch *=.*/batch = 4/; s/^microbatches *=.*/microbatches = 2/' "$source/examples/gpt/strategies/$2.toml" > "$work/$2.toml"
  "$bin/gsel" run -n "$1" --config "$work/$2.toml" -- "$bin/gpt" --data "$work/text" --steps 3 --quiet \
    --attention $attention --json "$work/$2.json" --sample 24 > "$work/$2.out" || fail "$2 on $1 rank(s) failed"
  sed -i '1,/^---/d' "$work/$2.out"
}
hashes() {
  sed -n 's/.*"hash": "\([0-9a-f]*\)".*/\1/p' "$work/$1.json" | sort -u
}

train 1 ddp
"$bin/gpt-by-hand" "$work/ddp.toml" "$work/text" 3 "$work/hand.json" > /dev/null || fail "gpt-by-hand failed"
[ "$(hashes ddp)" = "$(hashes hand)" ] || fail "one rank: expected the parameters of gpt-by-hand, $(hashes hand), got $(hashes ddp)"
mv "$work/ddp.json" "$work/one.json"
mv "$work/ddp.out" "$work/one.out"

# The kernels keep their contract, on this text; so does attention in a ring.
for attention in whole ring fused; do
  "$bin/gpt" --data "$work/text" --config "$work/ddp.toml" --steps 1 --quiet --check --layers 1 --width 48 --heads 3 \
    --context 20 --attention $attention > "$work/checked" || fail "gpt --check, attention $attention failed"
  [ "$(head -n 1 "$work/checked")" = "kernels: 15 layers checked, no breach" ] ||
    fail "attention $attention: expected that 15 layers are found right, got: $(cat "$work/checked")"
done

train 2 ddp
expected=$(hashes ddp)
[ -s "$work/one.out" ] || fail "the model wrote nothing"
cmp -s "$work/one.out" "$work/ddp.out" || fail "ddp: the model writes another text than on one rank"
for strategy in $same_sums; do
  train 2 "$strategy"
  [ "$(hashes "$strategy")" = "$expected" ] || fail "$strategy: expected the parameters of ddp, $expected, got $(hashes "$strategy")"
  cmp -s "$work/one.out" "$work/$strategy.out" || fail "$strategy: the model writes another text than on one rank"
  "$bin/gpt-compare" "$work/one.json" "$work/$strategy.json" > "$work/compared" ||
    fail "$strategy against one rank: $(cat "$work/compared")"
done
for strategy in $other_sums; do
  case $strategy in
    pp-tp-zero1) train 8 "$strategy" ;;
    *-ddp | *-zero1 | pp-tp) train 4 "$strategy" ;;
    *) train 2 "$strategy" ;;
  esac
  cmp -s "$work/one.out" "$work/$strategy.out" || fail "$strategy: the model writes another text than on one rank"
  "$bin/gpt-compare" "$work/one.json" "$work/$strategy.json" > "$work/compared" ||
    fail "$strategy against one rank: $(cat "$work/compared")"
done
train 2 ddp-bf16
[ "$(hashes ddp-bf16)" != "$expected" ] || fail "ddp-bf16: the parameters are those of ddp, so nothing was rounded"
"$bin/gpt-table" "$work/one.json" "$work/ddp.json" "$work/ddp-bf16.json" > /dev/null || fail "gpt-table"

# Sizes are the command line's, also where they do not divide evenly: three heads on two ranks, 50 positions on three.
# small RANKS STRATEGY: leaves small.json and the text the model wrote in small.out.
small() {
  attention=whole
  case $2 in *-ring) attention=ring ;; esac
  "$bin/gsel" run -n "$1" --config "$work/$2.toml" -- "$bin/gpt" --data "$work/text" --steps 3 --quiet --layers 2 \
    --width 48 --heads 3 --context 50 --attention $attention --json "$work/small.json" --sample 24 > "$work/small.out" ||
    fail "three heads, 50 positions: $2 on $1 ranks failed"
  sed -i '1,/^---/d' "$work/small.out"
}
small 1 ddp
mv "$work/small.json" "$work/small.one.json"
mv "$work/small.out" "$work/small.one.out"
for run in $small_runs; do # RANKS-STRATEGY
  small "${run%%-*}" "${run#*-}"
  "$bin/gpt-compare" "$work/small.one.json" "$work/small.json" > "$work/compared" ||
    fail "three heads, 50 positions: $run against one rank: $(cat "$work/compared")"
  cmp -s "$work/small.one.out" "$work/small.out" || fail "three heads, 50 positions: $run writes another text"
done
! "$bin/gpt" --data "$work/text" --width 48 --heads 5 2> "$work/refusal" || fail "five heads divide a width of 48"
grep -q "heads must divide" "$work/refusal" || fail "five heads: $(cat "$work/refusal")"

# The combinations of strategies, some of them: the parameters of an exact model are those of one rank, bit for bit.
"$bin/gpt-matrix" "$work/text" --short > "$work/matrix" || fail "gpt-matrix: $(cat "$work/matrix")"
