#!/bin/sh
# needed.sh LIBRARY PLUGINS...: what the loader is asked for. libgsel needs the C and C++ runtime and hwloc alone, is
# named libgsel.so.0, and neither it nor a plugin carries a search path; a plugin does not need libgsel.
set -eu
library=$1
shift
failed=0
fault() {
  echo "$1"
  failed=1
}
# entries TAG FILE: values of a dynamic tag
entries() {
  readelf -dW "$2" | awk -v tag="($1)" '$2 == tag { sub(/.*\[/, ""); sub(/\].*/, ""); print }'
}

soname=$(entries SONAME "$library")
[ "$soname" = libgsel.so.0 ] || fault "$library: expected SONAME libgsel.so.0, got \"$soname\""
for needed in $(entries NEEDED "$library"); do
  case $needed in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | libgcc_s.so.1 | libstdc++.so.6 | libhwloc.so.* | ld-linux*) ;;
    *) fault "$library: needs $needed, which not every host has; open it at run time" ;;
  esac
done
[ $# -gt 0 ] || fault "no plugin was given to look at"
for plugin in "$@"; do
  case " $(entries NEEDED "$plugin" | tr '\n' ' ')" in
    *" libgsel"*) fault "$plugin: needs libgsel; a plugin gets what it needs as tables" ;;
  esac
done
for file in "$library" "$@"; do
  paths=$(entries RPATH "$file")$(entries RUNPATH "$file")
  [ -z "$paths" ] || fault "$file: carries the search path $paths"
done
exit $failed
