#!/bin/sh
# test_pipeline.sh BIN: examples/pipeline on ranks: streams on as many as there are layers, and learns the same under every
# schedule.
set -eu
bin=$1
fail() {
  echo "test_pipeline.sh: $*" >&2
  exit 1
}
for ranks in 1 3; do
  got=$("$bin/gsel" run -n $ranks -- "$bin/pipeline") || fail "pipeline failed on $ranks ranks"
  [ "$(printf '%s\n' "$got" | grep -c 'busy')" = $ranks ] || fail "$ranks ranks: expected a line of each, got: $got"
done
expected=$("$bin/pipeline-train") || fail "train failed on one rank"
[ "$(printf '%s\n' "$expected" | head -n 1)" = "kernels: 7 layers checked, no breach" ] ||
  fail "expected that the kernels are found right, got: $expected"
last=$(printf '%s\n' "$expected" | sed -n 's/^run 119: loss //p')
awk "BEGIN { exit !(\"$last\" > 0 && \"$last\" < 0.05) }" || fail "expected a loss below 0.05 in the end, got: $expected"
for schedule in gpipe zb-v; do
  got=$("$bin/gsel" run -n 3 -- "$bin/pipeline-train" $schedule) || fail "train failed under $schedule"
  [ "$got" = "$expected" ] || fail "$schedule on 3 ranks: expected \"$expected\", got \"$got\""
done
