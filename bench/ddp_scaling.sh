#!/bin/sh
# ddp_scaling.sh BIN TEXT [ROUNDS [STEPS]]: tokens per second of examples/gpt under ddp on 2 ranks against 1 rank, one
# thread per rank, in interleaved rounds; prints a Markdown table of medians. "pair" is two independent single ranks at
# the same time: the ceiling that this machine sets, since its cores share caches and memory.
set -eu
bin=$1
text=$2
rounds=${3:-5}
steps=${4:-20}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPENBLAS_NUM_THREADS=1

[ -x "$bin/gpt" ] || { echo "ddp_scaling.sh: no $bin/gpt: the GPT example needs libopenblas-dev" >&2; exit 1; }

for batch in 8 16; do
  sed "s/^batch *=.*/batch = $batch/" "$(dirname "$0")/../examples/gpt/gpt.toml" > "$work/batch$batch.toml"
done

# train RANKS BATCH NAME: one run; its tokens/s is appended to NAME.
train() {
  out=$(mktemp "$work/run.XXXXXX")
  "$bin/gsel" run -n "$1" --config "$work/batch$2.toml" -- \
    "$bin/gpt" --data "$text" --steps "$steps" --quiet --json "$out" > /dev/null
  sed -n 's/.*"tokens_per_s": *\([0-9.]*\).*/\1/p' "$out" >> "$work/$3"
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  train 1 8 one8
  train 2 16 two16
  train 1 16 one16
  train 1 8 pair &
  first=$!
  train 1 8 pair &
  second=$!
  failed=
  wait "$first" || failed=1
  wait "$second" || failed=1
  [ -z "$failed" ] || { echo "ddp_scaling.sh: a run of the pair in round $round failed" >&2; exit 1; }
done

# stats NAME: "median (min-max)"; median NAME: the median alone.
median() { sort -n "$work/$1" | awk '{a[NR]=$1} END {print NR % 2 ? a[(NR+1)/2] : (a[NR/2]+a[NR/2+1])/2}'; }
stats() { sort -n "$work/$1" | awk -v m="$(median "$1")" 'NR==1 {low=$1} {high=$1} END {printf "%.0f (%.0f-%.0f)", m, low, high}'; }
share() { awk -v a="$(median "$1")" -v b="$(median "$2")" -v n="$3" 'BEGIN {printf "%.1f %%", 100 * a / (n * b)}'; }

echo "| run | tokens/s, median of $rounds (min-max) | share of ranks x 1 rank |"
echo "|---|---|---|"
echo "| 1 rank, batch 8 | $(stats one8) | |"
echo "| 1 rank, batch 8, while another runs | $(stats pair) | $(share pair one8 1) = ceiling of this machine |"
echo "| ddp, 2 ranks, batch 8 each | $(stats two16) | $(share two16 one8 2) (weak), $(share two16 pair 2) of the ceiling |"
echo "| 1 rank, batch 16 | $(stats one16) | |"
echo "| ddp, 2 ranks, batch 8 each | $(stats two16) | $(share two16 one16 2) (strong) |"
