#!/bin/sh
# demo.sh BIN TEXT: what `make run` shows. Lists the devices, trains the GPT on TEXT on two ranks (12 to 25 seconds on two
# free cores), lets it write, then trains the first 10 steps on one rank too and compares them. The last lines say what
# that was, and what to try next. STEPS changes how long.
set -eu
bin=$1
text=$2
example=$(dirname "$0")
config=$example/gpt.toml
picture=$(dirname "$bin")/step.svg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
[ -x "$bin/gpt" ] || { echo "gsel: no $bin/gpt: the GPT example needs libopenblas-dev" >&2; exit 1; }

echo "gsel devices: what this machine has"
"$bin/gsel" devices

echo
echo "training a GPT on $text: 2 ranks, strategy \"ddp\", $config"
mkdir "$work/steps"
{ cat "$config" && echo "timeline = \"$work/steps\""; } > "$work/gpt.toml"
"$bin/gsel" run -n 2 --config "$work/gpt.toml" -- \
  "$bin/gpt" --data "$text" --check --steps "${STEPS:-60}" --sample 400 --json "$work/2.json"
"$bin/gsel" trace "$work/steps" --svg "$picture"

echo
echo "the first 10 steps on 1 rank, beside those on 2"
OPENBLAS_NUM_THREADS=1 "$bin/gsel" run -n 1 --config "$config" -- \
  "$bin/gpt" --data "$text" --steps 10 --quiet --json "$work/1.json"
"$bin/gpt-compare" "$work/1.json" "$work/2.json"

# What was shown and what to try, in ten lines at most. The commands work as they stand here.
cat << EOF

shown: 2 ranks trained one model by strategy "ddp" to the losses of 1 rank and equal parameters on both, and sent the
       bytes that the closed form says; every kernel kept its contract. The last step is drawn in $picture
to try next, each from this folder:
  another strategy      $bin/gsel run -n 2 --config $example/strategies/zero3.toml -- $bin/gpt --data $text --seconds 30
  all strategies        make table (5 minutes), examples/gpt/README.md; your own text: make run DATA=file
  what a pipeline does  $bin/gsel program --schedule 1f1b zb-v --stages 4 --microbatches 8
  a rank that dies      $bin/gsel run -n 2 --config $config -- sh -c '[ \$RANK = 0 ] || exit 3; exec $bin/gpt --data $text'
  a program of yours    make install, then "The smallest program" in README.md; include/gsel/gsel.h is the manual
EOF
