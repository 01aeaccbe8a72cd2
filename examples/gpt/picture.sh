#!/bin/sh
# picture.sh BIN TEXT SVG: a timeline of a real step: eight steps of the GPT as a pipeline of two ranks with two stages
# each (schedule zb-v), the last of them drawn to SVG. `make picture` makes the one in README.md.
set -eu
bin=$1
text=$2
picture=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/steps"
{ cat "$(dirname "$0")/strategies/pp-zb-v.toml" && echo "timeline = \"$work/steps\""; } > "$work/gpt.toml"
OPENBLAS_NUM_THREADS=1 "$bin/gsel" run -n 2 --config "$work/gpt.toml" -- "$bin/gpt" --data "$text" --steps 8 --quiet
"$bin/gsel" trace "$work/steps" --svg "$picture"
