#!/bin/sh
# complete_test.sh: complete.sh passes what is whole and notices each kind of fault, on a binding made here.
set -eu
complete=$(dirname "$0")/complete.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/rs" "$work/go"
printf 'GSEL_0 {\n  global:\n    gsel_a;\n    gsel_a_init;\n    gsel_b;\n  local:\n    *;\n};\n' > "$work/map"
printf '// sys::gsel_b\nfn f() { unsafe { sys::gsel_a(sys::gsel_a_init()) } }\n' > "$work/rs/lib.rs"
printf 'package gsel\nfunc f() { C.gsel_a(C.gsel_a_init()) }\n' > "$work/go/f.go"
printf 'package gsel\nfunc g() { C.gsel_b() }\n' > "$work/go/f_test.go"

# expect FOLDER STATUS OMISSION TEXT: what is said has the text
expect() {
  printf '# why not\n%s\n' "$3" > "$work/omitted"
  status=0
  said=$("$complete" "$work/map" "$work/$1" "$work/omitted" 2>&1) || status=1
  case $status$said in
    "$2"*"$4"*) ;;
    *) printf '%s, "%s": expected status %s and "%s", got %s:\n%s\n' "$1" "$3" "$2" "$4" "$status" "$said" && exit 1 ;;
  esac
}
for binding in rs go; do
  expect $binding 0 'gsel_b: a test of this script' ''
  expect $binding 1 '' 'gsel_b: neither wrapped'
  expect $binding 1 'gsel_b:' 'expected "NAME: reason"'
  expect $binding 1 'gsel_a: wrapped' 'gsel_a: named in'
  expect $binding 1 'gsel_c: unknown' 'and not exported'
done
