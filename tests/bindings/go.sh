#!/bin/sh
# go.sh BUILD: the Go module against the stage: formatted, vetted, and every test passes, also under the race detector and
# with each pointer that is handed to C checked.
#   GOCACHE  kept between runs, so that only the first one compiles
. "$SOURCE/tests/install/common.sh"
export GOCACHE GOPROXY=off GOFLAGS=-mod=readonly GO111MODULE=on GOTOOLCHAIN=local CGO_ENABLED=1 GOPATH="$WORK/gopath"
export GSEL_GO_TEXT="$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt"
cd "$SOURCE/bindings/go"
expect "files that gofmt would change" "" "$(gofmt -l .)"
go vet ./...
tests() { # WHAT ARGUMENTS...
  what=$1
  shift
  go test -count=1 -timeout 200s "$@" ./... > "$WORK/tests.log" 2>&1 || { echo "$what:"; cat "$WORK/tests.log"; exit 1; }
}
GODEBUG=cgocheck=2 tests "with checked pointers" -v
grep -c '^ *--- PASS' "$WORK/tests.log"
grep -E '^ *--- SKIP' -A 1 "$WORK/tests.log" || true
tests "under the race detector" -race
