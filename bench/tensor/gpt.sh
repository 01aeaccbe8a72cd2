#!/bin/sh
# gpt.sh BIN TEXT [ROUNDS [STEPS]]: tokens per second of examples/gpt at width 1024, on one rank and on two that share
# the model by plugin tp, with one thread per rank, in turns; prints a Markdown table of medians. "pair" is two
# independent single ranks at the same time, one of which is counted: what the other core's work takes from this one,
# and so the bound of the gain.
set -eu
bin=$1 text=$2 rounds=${3:-3} steps=${4:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPENBLAS_NUM_THREADS=1
[ -x "$bin/gpt" ] || { echo "gpt.sh: no $bin/gpt: the GPT example needs libopenblas-dev" >&2; exit 1; }

cat > "$work/one.toml" << END
[train]
batch = 4
optimizer = "sgd"
learning_rate = 0.01
END
for name in tp2 tp2-sp; do
  sequence=false
  [ "$name" = tp2 ] || sequence=true
  { cat "$work/one.toml"; printf '[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = "tp"\nsequence_parallel = %s\n' $sequence; } > "$work/$name.toml"
done

# train RANKS CONFIG NAME: one run; its tokens/s is appended to NAME.
train() {
  out=$(mktemp "$work/run.XXXXXX")
  "$bin/gsel" run -n "$1" --config "$work/$2.toml" -- "$bin/gpt" --data "$text" --steps "$steps" --layers 2 \
    --width 1024 --heads 16 --quiet --json "$out" > /dev/null
  sed -n 's/.*"tokens_per_s": *\([0-9.]*\).*/\1/p' "$out" >> "$work/$3"
}

for round in $(seq "$rounds"); do
  echo "round $round of $rounds" >&2
  train 1 one one
  train 2 tp2 tp2
  train 2 tp2-sp tp2-sp
  train 1 one pair &
  other=$!
  train 1 one unused
  wait "$other" || { echo "gpt.sh: a run of the pair in round $round failed" >&2; exit 1; }
done

median() { sort -n "$work/$1" | awk '{a[NR]=$1} END {print NR % 2 ? a[(NR+1)/2] : (a[NR/2]+a[NR/2+1])/2}'; }
gain() { awk -v a="$(median "$1")" -v b="$(median one)" -v n="$2" 'BEGIN {printf "%.2f", n * a / b}'; }
echo
echo "## Training examples/gpt, width 1024, 2 layers, batch 4"
echo
echo "| run | tokens/s, median of $rounds | times one rank |"
echo "|---|---|---|"
echo "| one rank | $(median one) | |"
echo "| two ranks, tp | $(median tp2) | $(gain tp2 1) |"
echo "| two ranks, tp and sequence parallel | $(median tp2-sp) | $(gain tp2-sp 1) |"
echo "| two independent ranks at once, of one | $(median pair) | $(gain pair 2), the bound |"
