#!/bin/sh
# A Go program through cgo, without modules from elsewhere; ranks are goroutines, then processes.
#   GOCACHE  kept between runs, so that only the first one compiles the runtime's cgo
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
cp "$SOURCE"/tests/install/go/* .
export GOCACHE GOPROXY=off GOFLAGS=-mod=mod GO111MODULE=on GOTOOLCHAIN=local CGO_ENABLED=1 GOPATH="$WORK/gopath"
go vet .
go build -buildvcs=false -o allreduce .
expect_run "2 ranks as goroutines" "2 ranks: sum 3, parameter 1" ./allreduce
expect_run "2 ranks as processes" "2 ranks: sum 3, parameter 1" gsel run -n 2 -- ./allreduce
