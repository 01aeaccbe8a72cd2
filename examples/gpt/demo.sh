#!/bin/sh
# demo.sh BIN TEXT: what `make run` shows. Lists the devices, trains the GPT on TEXT on two ranks (about 35 seconds on two
# free cores), lets it write, then trains the first 20 steps on one rank too and compares them. STEPS changes how long.
set -eu
bin=$1
text=$2
config=$(dirname "$0")/gpt.toml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
[ -x "$bin/gpt" ] || { echo "gsel: no $bin/gpt: the GPT example needs libopenblas-dev" >&2; exit 1; }

echo "gsel devices: what this machine has"
"$bin/gsel" devices

echo
echo "training a GPT on $text: 2 ranks, strategy \"ddp\", $config"
"$bin/gsel" run -n 2 --config "$config" -- \
  "$bin/gpt" --data "$text" --check --steps "${STEPS:-120}" --sample 400 --json "$work/2.json"

echo
echo "the first 20 steps on 1 rank, beside those on 2"
OPENBLAS_NUM_THREADS=1 "$bin/gsel" run -n 1 --config "$config" -- \
  "$bin/gpt" --data "$text" --steps 20 --quiet --json "$work/1.json"
"$bin/gpt-compare" "$work/1.json" "$work/2.json"
