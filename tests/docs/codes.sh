#!/bin/sh
# codes.sh SOURCE: docs/errors.md has one row for each code of error.h, in its order, and no other; and one message of
# each code that is none of selection's, but of those two that it says it has none of. That the messages are those of the
# library is tested by blocks.py. No example and no page reads an error beside the call that writes it.
set -eu
header=$1/include/gsel/error.h page=$1/docs/errors.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
same() { # WHAT: the files expected and found are equal
  diff -u "$work/expected" "$work/found" || { echo "$page: $1 are not those of $header"; exit 1; }
}
sed -n 's/^ *X(\(GSEL_[A-Z_]*\), .*/\1/p' "$header" > "$work/expected"
[ "$(wc -l < "$work/expected")" -gt 30 ] || { echo "$header: the list of codes is not found"; exit 1; }
sed -n 's/^| `\(GSEL_[A-Z_]*\)` | .*/\1/p' "$page" > "$work/found"
same "the rows of codes"
sed -n 's/^ *X(\(GSEL_ERR_[A-Z_]*\), -[0-9]\{1,2\}, .*/\1/p' "$header" | grep -v -x -e GSEL_ERR_INTERNAL -e GSEL_ERR_DEVICE > "$work/expected"
sed -n '/^## A message of each/,$s/^\(GSEL_ERR_[A-Z_]*\): .*/\1/p' "$page" > "$work/found"
same "the codes with a message"
beside='&(([A-Za-z_]+(->|\.))*err(or)?)\), *\1[,)]|\(call, *[A-Za-z_>.-]*err'
echo 'check(gsel_barrier(comm, &s->err), s->err);' | grep -qE "$beside" || { echo "the expression finds nothing"; exit 1; }
cd "$1"
! grep -rnE "$beside" examples docs README.md bindings/*/README.md || { echo "pass the address, as error.h says"; exit 1; }
