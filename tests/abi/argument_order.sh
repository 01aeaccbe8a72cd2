#!/bin/sh
# argument_order.sh SOURCE: nobody hands an error to a function beside the call that writes it, as in
# check(call(..., &err), err): arguments are evaluated in any order, so err may be read before it is written. Names of
# macros, which evaluate in order, are passed over.
set -eu
export LC_ALL=C
cd "$1"

# No match is what is wanted, and what grep calls a failure.
macros='check_ok|check_fails|rank_ok|rank_fails|OK|FAILS'
found=$(find bench bindings docs examples include lib plugins tests README.md -type f \
  \( -name '*.[ch]' -o -name '*.cc' -o -name '*.go' -o -name '*.rs' -o -name '*.md' \) \
  -exec grep -HnE '[A-Za-z_]+\([A-Za-z_.:]+\(.*&([A-Za-z_]+)\), *\1[,)]' {} + |
  grep -vE "[^A-Za-z_]($macros)\(" | grep -v '^include/gsel/error.h:' || true)
[ -z "$found" ] || {
  printf '%s\n' "$found"
  echo "read too early: call first, then pass the error, or pass its address"
  exit 1
}
