#!/bin/sh
# test_tree.sh BIN SOURCE: examples/tree grows the same trees on any number of ranks, also through the functions that
# LightGBM would call, and they predict.
set -eu
bin=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$source"/docs/*.md > "$work/text"
# On 13 ranks one has no feature.
"$bin/tree" "$work/text" > "$work/expected"
for way in 2 3 4 13 "3 lightgbm"; do
  set -- $way
  "$bin/gsel" run -n "$1" -- "$bin/tree" "$work/text" ${2:-} > "$work/trees"
  cmp "$work/expected" "$work/trees" || { echo "other trees on ranks: $way"; exit 1; }
done
[ "$(grep -c ' node ' "$work/expected")" -gt 200 ] || { echo "too few splits:"; cat "$work/expected"; exit 1; }
sed -n 's/.*held out //p' "$work/expected" | awk 'NR == 1 { first = $1 } END { exit !(NR == 20 && $1 > 0 && $1 < 0.6 * first) }' ||
  { echo "did not learn:"; grep loss "$work/expected"; exit 1; }
