#!/bin/sh
# go_static.sh BUILD: with the tag gsel_static a Go program has libgsel and the strategies in it. It trains where there is
# neither libgsel.so nor a plugin, to the losses of the one that finds both; and so does one that is static altogether.
#   GOCACHE  kept between runs, so that only the first one compiles
. "$SOURCE/tests/install/common.sh"
export GOCACHE GOPROXY=off GOFLAGS=-mod=readonly GO111MODULE=on GOTOOLCHAIN=local CGO_ENABLED=1 GOPATH="$WORK/gopath"
cd "$SOURCE/bindings/go"
build() { # NAME ARGUMENTS...
  out=$WORK/$1
  shift
  go build -buildvcs=false -o "$out" "$@" ./examples/train_mlp > "$WORK/log" 2>&1 || { cat "$WORK/log"; exit 1; }
}
build shared
build static -tags gsel_static
sed -n '/^<!-- block: file no_udev.c/,/^```$/p' "$SOURCE/docs/packaging.md" | grep -v -e '^```' -e '^<!--' > "$WORK/no_udev.c"
$CC -c "$WORK/no_udev.c" -o "$WORK/no_udev.o"
build alone -tags gsel_static,netgo,osusergo -ldflags "-linkmode external -extldflags '-static $WORK/no_udev.o'"
expect_alone "$WORK/static"
case $(readelf -lW "$WORK/alone") in *INTERP*) fault "alone needs a dynamic linker" ;; esac
train() {
  gsel run -n 2 -- "$@" -config examples/train_mlp/gsel.toml -steps 40 "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt"
}
losses=$(train "$WORK/shared") || fault "train_mlp failed: $losses"
for how in static alone; do
  expect_run "train_mlp, $how" "$losses" train "$WORK/$how"
done
