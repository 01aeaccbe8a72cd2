#!/bin/sh
# go.sh BUILD: the Go module against the stage: formatted, vetted, whole, laid out as C is; every test passes, with each
# pointer that is handed to C checked, and under the race detector; it builds without cgo; and the examples compute the
# same on one rank and on two.
#   GOCACHE  kept between runs, so that only the first one compiles
. "$SOURCE/tests/install/common.sh"
export GOCACHE GOPROXY=off GOFLAGS=-mod=readonly GO111MODULE=on GOTOOLCHAIN=local CGO_ENABLED=1 GOPATH="$WORK/gopath"
export GSEL_C_LAYOUT="$WORK/c.layout"
go=$SOURCE/bindings/go
cd "$go"
expect "files that gofmt would change" "" "$(gofmt -l . "$SOURCE/bench/go")"
"$SOURCE/tests/bindings/complete.sh" "$SOURCE/lib/api/libgsel.map" . omitted.txt
"$SOURCE/tests/bindings/layout.sh" "$(pkg-config --variable=includedir gsel)" "$CC" > "$GSEL_C_LAYOUT"
CGO_ENABLED=0 go run ./internal/nocgo | diff nocgo.go - > "$WORK/diff" ||
  fault "nocgo.go is not what internal/nocgo writes (>: what it writes):" "$(head -n 40 "$WORK/diff")"
go vet -race ./... # so that the standard library is compiled once for this and for the tests
(cd "$SOURCE/bench/go" && go vet .)

tests() { # WHAT ARGUMENTS...: all tests pass, and none is skipped
  what=$1
  shift
  go test -count=1 -timeout 200s -v "$@" . > "$WORK/tests.log" 2>&1 || { echo "$what:"; cat "$WORK/tests.log"; exit 1; }
  expect "tests left out $what" "" "$(grep -A 1 -E '^ *--- SKIP' "$WORK/tests.log" || true)"
  echo "$what: $(grep -c '^--- PASS' "$WORK/tests.log") tests"
}
GODEBUG=cgocheck=2 tests "with checked pointers, under the race detector" -race
CGO_ENABLED=0 go build ./...
CGO_ENABLED=0 tests "without cgo" -run WithoutCgo

# The examples, as ranks that are processes, on data that comes with Go.
go build -buildvcs=false -o "$WORK/" ./examples/...
data=$(go env GOROOT)/src
first="device 0: position 0, position 0 of count:2"
expect "devices" "$first" "$("$WORK/devices" -inventory "$SOURCE/tests/data/inventory/mixed4.json" count:2 | head -n 1)"
expect_run "allreduce" "2 ranks: sum of ranks 1, of ones 2" gsel run -n 2 -- "$WORK/allreduce"
# learns NAME FROM TO COMMAND...: on two ranks the losses are those on one, and go from above FROM to below TO
learns() {
  name=$1 from=$2 to=$3
  shift 3
  alone=$("$@") || fault "$name: exit status $? on one rank"
  expect_run "$name on two ranks" "$alone" gsel run -n 2 -- "$@"
  printf '%s\n' "$alone" | awk -v from="$from" -v to="$to" 'NR == 1 { a = $NF } END { exit !(a > from && $NF < to) }' ||
    fault "$name: expected from above $from to below $to, got" "$alone"
}
learns train_mlp 3.2 1.9 "$WORK/train_mlp" -config "$go/examples/train_mlp/gsel.toml" "$data/testdata/Isaac.Newton-Opticks.txt"
learns average_gradients 1 0.07 "$WORK/average_gradients" "$data/image/testdata/video-001.png"
