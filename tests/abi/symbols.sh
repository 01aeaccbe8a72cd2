#!/bin/sh
# symbols.sh LIBRARY SOURCE: the exported names stand in four places, which must say the same: the library, its map,
# tests/abi/symbols.txt, and the GSEL_API declarations of include/gsel. Shows the lines that differ.
#   symbols.sh LIBRARY SOURCE --write   makes symbols.txt from the headers, for whoever added a function
set -eu
export LC_ALL=C
library=$1 source=$2
map=$source/lib/api/libgsel.map promised=$source/tests/abi/symbols.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A declaration may run over lines: from GSEL_API to the first parenthesis, of which the last word is the name.
awk '/^[ \t]*#/ { next }
     /^GSEL_API/ { open = 1; text = "" }
     open { text = text " " $0 }
     open && /\(/ { sub(/\(.*/, "", text); n = split(text, word, /[ *]+/); print word[n]; open = 0 }' \
  "$source"/include/gsel/*.h | sort > "$work/headers"
if [ "${3:-}" = --write ]; then
  cp "$work/headers" "$promised"
  exit 0
fi
nm -D --defined-only "$library" > "$work/nm"
# Absolute symbols are the names of map nodes.
awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' "$work/nm" | sort > "$work/library"
awk '/local:/ { exit } /;$/ { gsub(/[ \t;]/, ""); print }' "$map" | sort > "$work/map"

failed=0
# must_equal NAME FILE: against symbols.txt, both sides sorted
must_equal() {
  if ! diff "$promised" "$2" > "$work/diff"; then
    echo "tests/abi/symbols.txt (<) and $1 (>) differ:"
    grep '^[<>]' "$work/diff"
    failed=1
  fi
}
[ -s "$work/headers" ] || { echo "no GSEL_API declaration found in $source/include/gsel"; exit 1; }
must_equal "the declarations of include/gsel" "$work/headers"
must_equal "$map" "$work/map"
must_equal "the exports of $library" "$work/library"

awk '$2 != "A" && $3 !~ /@@GSEL_0$/ { print "exported outside of node GSEL_0: " $3 }' "$work/nm" > "$work/nodes"
if [ -s "$work/nodes" ]; then
  cat "$work/nodes"
  failed=1
fi
exit $failed
