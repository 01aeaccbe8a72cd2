#!/bin/sh
# build.sh OUT: what a build of this tree costs, from nothing and without a compiler cache: time, size, and where both
# go. Writes a page to OUT. Builds a clone of what is committed, in a folder that is gone afterwards.
set -eu
out=$1
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export CCACHE_DISABLE=1
jobs=$(nproc)
git clone --quiet "$here" "$work/gsel"
cd "$work/gsel"

# measure COMMAND...: its seconds and its processor seconds, in $wall and $cpu
measure() {
  echo "gsel: $*" >&2
  /usr/bin/env bash -c 'TIMEFORMAT="%R %U %S"; time "$@" > "$0" 2>&1' "$work/log" "$@" 2> "$work/time" || { tail -n 30 "$work/log" >&2; exit 1; }
  wall=$(awk '{ printf "%.0f", $1 }' "$work/time") cpu=$(awk '{ printf "%.0f", $2 + $3 }' "$work/time")
}
row() { echo "| $1 | $wall | $cpu |" >> "$work/times"; }
mib() { du -sLB1 "$@" | awk '{ s += $1 } END { printf "%.2f", s / 1e6 }'; }

measure cmake --preset default
row "cmake, configuring"
measure cmake --build build -j "$jobs" --target run_parts
row "what \`make run\` needs: library, command, plugins, GPT"
measure cmake --build build -j "$jobs"
row "the rest: tests, benches, examples"
echo "// touched" >> lib/train/compile/compile.cc
measure cmake --build build -j "$jobs" --target gsel
row "one file of \`lib/\` changed: its folder compiled, the library linked"
echo "/* touched */" >> lib/base/error.h
measure cmake --build build -j "$jobs" --target gsel
row "\`lib/base/error.h\` changed, which nearly every file includes"
cmake --preset dev > "$work/log"
measure cmake --build build-dev -j "$jobs" --target gsel
row "preset \`dev\`, each file by itself: the library"
echo "// touched" >> lib/train/compile/compile.cc
measure cmake --build build-dev -j "$jobs" --target gsel
row "preset \`dev\`: one file of \`lib/\` changed, the library linked"
measure cmake --install build --strip --prefix "$work/installed"

# seconds by folder of the tree, of the newest entry of each object
awk 'NR > 1 { spent[$4] = ($2 - $1) / 1000 }
  END { for (object in spent) {
      folder = object
      if (sub(/.*gsel_(fast|small)\.dir\/Unity\/unity_/, "lib/", folder)) { sub(/_cxx\.cxx\.o/, "", folder); gsub(/_/, "/", folder) }
      else if (sub(/.*gsel_(fast|small)\.dir\//, "lib/", folder)) { if (split(folder, part, "/") < 4) folder = part[1] "/" part[2]; else folder = part[1] "/" part[2] "/" part[3] }
      else if (folder ~ /\.o$/) { split(folder, part, "/"); folder = part[1] }
      else folder = "linking and the rest"
      sum[folder] += spent[object]; n[folder]++ }
    for (folder in sum) printf "| %s | %d | %.1f |\n", folder, n[folder], sum[folder] }' build/.ninja_log |
  sort -t'|' -k4 -rn | head -24 > "$work/folders"
{
  echo "# What a build costs"
  echo
  echo "Made by \`make bench-build\`: $(nproc) processors ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)), $(c++ --version | head -n 1), no compiler cache."
  echo
  echo "| step | seconds | processor seconds |"
  echo "|---|---|---|"
  cat "$work/times"
  echo
  echo "| size | MB |"
  echo "|---|---|"
  echo "| libgsel.so as installed | $(mib "$work"/installed/lib*/libgsel.so "$work"/installed/lib/*/libgsel.so 2> /dev/null | head -n 1) |"
  echo "| gsel, the command, as installed | $(mib "$work/installed/bin/gsel") |"
  echo "| libgsel.so with its debug information | $(mib build/lib/libgsel.so) |"
  echo "| the build tree, tests included | $(du -sB1 build | awk '{ printf "%.0f", $1 / 1e6 }') |"
  echo
  echo "Seconds by folder, of compilers that ran side by side:"
  echo
  echo "| folder | translation units | seconds |"
  echo "|---|---|---|"
  cat "$work/folders"
} > "$work/page"
cp "$work/page" "$here/$out"
