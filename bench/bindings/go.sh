#!/bin/sh
# go.sh: what an allreduce of 8 B costs from Go over C. gsel is what pkg-config finds.
set -eu
cd "$(dirname "$0")/go"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local go build -buildvcs=false -o "$work/overhead" .
"$work/overhead"
