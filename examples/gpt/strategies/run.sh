#!/bin/sh
# run.sh BIN TEXT [README]: trains the GPT with every strategy of this folder, 100 steps on two ranks, or four or eight
# where two or three axes are shared, and shows what they came to as a table; with README, the table there is replaced.
# STEPS and RANKS change the numbers.
set -eu
here=$(dirname "$0")
bin=$1
text=$2
readme=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OPENBLAS_NUM_THREADS=1
[ -x "$bin/gpt" ] || { echo "gsel: no $bin/gpt: the GPT example needs libopenblas-dev" >&2; exit 1; }

# train RANKS CONFIG: the record is called as the configuration is.
train() {
  name=$(basename "$2" .toml)
  attention=whole
  case $name in *-ring) attention=ring ;; esac
  echo "$name, ${STEPS:-100} steps" >&2
  "$bin/gsel" run -n "$1" --config "$2" -- \
    "$bin/gpt" --data "$text" --steps "${STEPS:-100}" --quiet --attention $attention \
    --json "$work/$name.json" > /dev/null
}
cp "$here/ddp.toml" "$work/one rank.toml"
train 1 "$work/one rank.toml"
set -- "$work/one rank.json"
for name in dp ddp ddp-bf16 recompute zero1 zero2 zero3 zero3-offload pp-1f1b pp-interleaved pp-zb-h1 pp-zb-v tp tp-sp \
  cp cp-ring; do
  train "${RANKS:-2}" "$here/$name.toml"
  set -- "$@" "$work/$name.json"
done
for name in pp-ddp pp-zero1 tp-ddp tp-zero1 pp-tp; do
  train $((2 * ${RANKS:-2})) "$here/$name.toml"
  set -- "$@" "$work/$name.json"
done
train $((4 * ${RANKS:-2})) "$here/pp-tp-zero1.toml"
set -- "$@" "$work/pp-tp-zero1.json"

"$bin/gpt-table" "$@" > "$work/table"
cat "$work/table"
[ -n "$readme" ] || exit 0
awk -v table="$work/table" '
  /<!-- end of table -->/ { inside = 0 }
  !inside { print }
  /<!-- table/ { inside = 1; while ((getline line < table) > 0) print line }
' "$readme" > "$work/readme"
cat "$work/readme" > "$readme"
