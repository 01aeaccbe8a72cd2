#!/bin/sh
# run.sh BUILD PAGE: what a call of the Go package costs over the same call in C, against BUILD installed beside itself.
#   PAGE  the table, with the machine and the load it was measured under
set -eu
build=$(cd "$1" && pwd) page=$2
here=$(cd "$(dirname "$0")" && pwd)
stage=$build/bench-stage
cmake --install "$build" --strip --prefix "$stage" > "$build/bench-stage.log"
pc=$(find "$stage" -name gsel.pc)
export PKG_CONFIG_PATH="$(dirname "$pc")" LD_LIBRARY_PATH="$(cd "$(dirname "$pc")/.." && pwd)"
export GOCACHE="$build/tests/gocache" GOPROXY=off GOFLAGS=-mod=readonly GOTOOLCHAIN=local GO111MODULE=on
(cd "$here" && go build -buildvcs=false -o "$build/bench-go" .)
load=$(cut -d ' ' -f 1 /proc/loadavg)
{
  echo "# What a call from Go costs"
  echo
  echo "An allreduce of 8 bytes through \`gsel.AllReduce\` and through \`gsel_allreduce\` in C, on one rank, in blocks of 20,000"
  echo "calls that alternate; what Go adds is the difference within each of 301 pairs of blocks. Made by \`make bench-go\`."
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, load $load before; $(go version | cut -d ' ' -f 3), $(cc --version | head -n 1)."
  echo
  "$build/bench-go"
} > "$build/bench-go.md"
cp "$build/bench-go.md" "$page"
