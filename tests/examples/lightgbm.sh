#!/bin/sh
# lightgbm.sh PROGRAM BIN SOURCE LIB_LIGHTGBM: LightGBM over gsel trains the very model that it trains over its own sockets:
# on two ranks, and on three if gradients are integers, whose sums do not depend on the order of ranks.
set -eu
program=$1 bin=$2 source=$3 library=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$source"/docs/*.md > "$work/text"
# train RANKS PORT FOLDER PARAMETERS...
train() {
  ranks=$1 port=$2 folder=$work/$3
  shift 3
  mkdir "$folder"
  "$bin/gsel" run -n "$ranks" -- "$program" "$library" "$work/text" "$folder" "$port" "$@" > "$folder.said" 2>&1 ||
    { cat "$folder.said"; exit 1; }
}
port=$((20000 + $$ % 10000))
compare() { # RANKS PARAMETERS...
  ranks=$1
  shift
  train "$ranks" 0 gsel "$@"
  train "$ranks" $port sockets "$@"
  port=$((port + ranks))
  diff -r "$work/gsel" "$work/sockets" > "$work/diff" || { echo "$ranks ranks, $* (<: gsel):"; head -n 40 "$work/diff"; exit 1; }
  diff "$work/gsel/0" "$work/gsel/$((ranks - 1))"
  grep -q '^Tree=5' "$work/gsel/0" || { echo "too few trees:"; cat "$work/gsel/0"; exit 1; }
  rm -r "$work/gsel" "$work/sockets"
}
compare 2 max_bin=255
compare 2 use_quantized_grad=true
compare 3 use_quantized_grad=true
