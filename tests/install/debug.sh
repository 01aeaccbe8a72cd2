#!/bin/sh
# debug.sh: what is installed is stripped and small; its debug information stands beside it, is found from it and names
# functions and lines.
. "$SOURCE/tests/install/common.sh"
for file in "$STAGE_LIB"/libgsel.so.[0-9]*.[0-9]*.[0-9]* "$STAGE/usr/bin/gsel" "$(pkg-config --variable=plugindir gsel)"/*.so; do
  debug="$(dirname "$file")/.debug/$(basename "$file").debug"
  [ -s "$debug" ] || fault "$debug is not installed"
  sections=$(readelf -SW "$file")
  case $sections in *.debug_line*) fault "$file is not stripped" ;; esac
  case $sections in *.gnu_debuglink*) ;; *) fault "$file does not say where its debug information is" ;; esac
  expect "build-id of $debug" "$(readelf -n "$file" | grep 'Build ID')" "$(readelf -n "$debug" | grep 'Build ID')"
done
address=$(readelf -sW --dyn-syms "$STAGE_LIB/libgsel.so" | awk '$8 ~ /^gsel_resolve$|^gsel_resolve@/ { print $2; exit }')
place=$(addr2line -f -e "$(ls "$STAGE_LIB"/.debug/libgsel.so.*.debug)" "$address" | tr '\n' ' ')
case $place in "gsel_resolve "*lib/api/select.cc:[0-9]*) ;; *) fault "gsel_resolve is at: $place" ;; esac
