#!/bin/sh
# baseline.sh SOURCE COMPILER: include/gsel promises what tests/abi/baseline says: functions with their arguments, structs
# with their fields, offsets and sizes (gsel.abi, compared by abidiff), and constants (constants.txt). The baseline in turn
# stands in include/CHANGELOG.md by its number, so that none is changed without a line there. Shows what differs.
#   baseline.sh SOURCE COMPILER --write   makes the baseline from the headers, and names its number
set -eu
export LC_ALL=C
source=$1 compiler=$2
kept=$source/tests/abi/baseline
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A library of the headers alone: each function with no body to speak of, and a pointer to each struct, which tables of
# plugins are reached by. Types of libgsel itself are not needed, so neither is a build with full debug information.
{
  echo '#include <gsel/gsel.h>'
  printf '#include <gsel/%s.h>\n' plugin device transport
  awk '/^[ \t]*#/ { next }
       /^GSEL_API/ { open = 1 }
       open { sub(/;.*/, " { __builtin_trap(); }"); print; if (/trap/) open = 0 }' "$source"/include/gsel/*.h
  awk '/^(typedef )?struct gsel_[a-z0-9_]+ \{/ { sub(/^typedef /, ""); print $1, $2, "*abi_of_" $2 ";" }' \
    "$source"/include/gsel/*.h
} > "$work/headers.c"
"$compiler" -std=gnu99 -g -O0 -fPIC -shared -Wpadded -Werror -I"$source/include" -o "$work/headers.so" "$work/headers.c"
printf '#include <gsel/%s.h>\n' gsel plugin device transport |
  "$compiler" -std=gnu99 -dM -E -I"$source/include" - |
  grep -E '^#define GSEL_' | grep -vE ' GSEL_(API|[A-Z]+_H|EXTERN_C_[A-Z]+)( |$)' | sort > "$work/constants.txt"

number_of() {
  cat "$1/gsel.abi" "$1/constants.txt" | sha256sum | cut -c 1-12
}
if [ "${3:-}" = --write ]; then
  abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed --no-parameter-names \
    --type-id-style hash "$work/headers.so" | sed "s|path='$work/|path='|" > "$kept/gsel.abi"
  cp "$work/constants.txt" "$kept"
  echo "baseline $(number_of "$kept"); it needs a line in include/CHANGELOG.md"
  exit 0
fi

failed=0
abidiff --no-show-locs "$kept/gsel.abi" "$work/headers.so" > "$work/diff" || failed=1
[ $failed = 0 ] || cat "$work/diff"
if ! diff "$kept/constants.txt" "$work/constants.txt" > "$work/diff"; then
  echo "constants of tests/abi/baseline (<) and of include/gsel (>) differ:"
  grep '^[<>]' "$work/diff"
  failed=1
fi
if ! grep -q "baseline $(number_of "$kept")" "$source/include/CHANGELOG.md"; then
  echo "tests/abi/baseline has the number $(number_of "$kept"), which include/CHANGELOG.md does not have; say there what changed"
  failed=1
fi
[ $failed = 0 ] || echo "tests/abi/baseline.sh . cc --write makes the baseline anew"
exit $failed
