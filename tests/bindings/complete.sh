#!/bin/sh
# complete.sh MAP SOURCE_DIR OMISSIONS: a binding wraps every exported function of the version map, or says why not.
#   SOURCE_DIR  of the binding: a use is sys::NAME in a *.rs file, C.NAME in a *.go file that is no test, or NAME in a
#               *.c or *.h file; lines that begin with // do not count
#   OMISSIONS   lines "NAME: reason"; lines that begin with # are comments
# A name that is both used and omitted, or omitted without being exported, or without a reason, is a fault as well.
set -eu
export LC_ALL=C
map=$1 source=$2 omissions=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

awk '/local:/ { exit } /;$/ { gsub(/[ \t;]/, ""); print }' "$map" | sort > "$work/exported"
[ -s "$work/exported" ] || { echo "$map: no exported name found"; exit 1; }
uses() { # PATTERN FIND_ARGUMENTS...: names after the pattern
  pattern=$1
  shift
  find "$source" -type f "$@" -exec cat {} + | grep -vE '^[[:space:]]*//' |
    grep -oE "(^|[^A-Za-z0-9_])${pattern}gsel_[a-z0-9_]+" | sed 's/.*[^a-z0-9_]\(gsel_\)/\1/; s/^[^g]*//' || true
}
{
  uses 'sys::' -name '*.rs'
  uses 'C\.' -name '*.go' ! -name '*_test.go'
  uses '' \( -name '*.c' -o -name '*.h' \)
} | sort -u > "$work/used"
grep -v '^#' "$omissions" | grep . > "$work/omissions" || true
sed 's/:.*//' "$work/omissions" | sort > "$work/omitted"

failed=0
# fault FILE TEXT: each name of the sorted file, with the text
fault() {
  while read -r name; do
    echo "$name: $2"
    failed=1
  done < "$1"
}
sort -u "$work/used" "$work/omitted" | comm -23 "$work/exported" - > "$work/list"
fault "$work/list" "neither wrapped in $source nor named in $omissions"
comm -23 "$work/omitted" "$work/exported" > "$work/list"
fault "$work/list" "named in $omissions, and not exported"
comm -12 "$work/omitted" "$work/used" > "$work/list"
fault "$work/list" "named in $omissions, and wrapped in $source"
grep -vE '^gsel_[a-z0-9_]+: [^ ]' "$work/omissions" > "$work/list" || true
fault "$work/list" "$omissions: expected \"NAME: reason\""
exit $failed
