#!/bin/sh
# tests.sh BUILD JOBS: runs the tests of a build tree, and says behind ctest's closing lines what was left out: parts that
# were not built, and what tests that passed have left out themselves, each with its reason.
set -eu
export GSEL_TUNING= # how this user's machine was tuned is not what is tested
build=$1 jobs=$2
log=$build/Testing/tests.log
mkdir -p "$build/Testing"
status=0
ctest --test-dir "$build" --output-on-failure -j "$jobs" --output-junit Testing/tests.xml --test-output-size-passed 65536 || status=$?
{
  cat "$build/left-out.txt"
  grep -ahoE '^[A-Za-z][^<>]* (is|are) left out: .*|^left out: .*' "$build/Testing/tests.xml" || true
} | sort -u > "$log"
[ ! -s "$log" ] || sed 's/^/gsel: not tested: /' "$log" >&2
exit $status
