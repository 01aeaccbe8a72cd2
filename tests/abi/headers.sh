#!/bin/sh
# headers.sh INCLUDE c99|c++17 COMPILER...: each public header compiles alone and without a warning, and so does a use
# of every initialiser macro, which must give what the function of that name gives.
#   LIBRARY_DIR  folder of libgsel.so
set -eu
include=$1 standard=$2
shift 2
case $standard in
  c++*) language=c++ ;;
  *) language=c ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile() {
  "$compiler" -x $language -std=$standard -pedantic -Wall -Wextra -Werror -I"$include" "$@"
}

# type, macro and function of each initialiser, as lines of C
awk '$1 == "#define" && $3 ~ /^GSEL_STRUCT_INIT\(gsel_/ {
       type = $3
       gsub(/.*\(|\).*/, "", type)
       printf "INITIALISER(%s, %s, %s_init)\n", type, $2, type }' \
  "$include"/gsel/*.h > "$work/initialisers.inc"
[ -s "$work/initialisers.inc" ] || { echo "no initialiser found in $include/gsel"; exit 1; }

failed=0
fault() {
  echo "$1"
  failed=1
}
for compiler in "$@"; do
  for header in "$include"/gsel/*.h; do
    name=gsel/$(basename "$header")
    # twice: the guard must hold as well
    printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$name" "$name" > "$work/alone"
    compile -c -o "$work/alone.o" "$work/alone" || fault "$name alone: $compiler -std=$standard refuses it"
  done
  compile -Wshadow -I"$work" -o "$work/initialisers" "$(dirname "$0")/initialisers.c" -x none \
    -L"$LIBRARY_DIR" -Wl,-rpath,"$LIBRARY_DIR" -lgsel || fault "initialisers.c: $compiler -std=$standard refuses it"
  "$work/initialisers" || fault "initialisers.c: built by $compiler -std=$standard it finds the faults above"
done
exit $failed
