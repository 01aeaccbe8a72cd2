#!/bin/sh
# A Rust program with declarations written by hand, built by rustc alone; ranks are threads, then processes.
. "$SOURCE/tests/install/common.sh"
cd "$WORK"
cp "$SOURCE"/tests/install/rust/*.rs .
# pkg-config's -L and -l are what rustc calls them too
rustc --edition 2018 -D warnings -O allreduce.rs $(pkg-config --libs gsel) -o allreduce
expect_run "2 ranks as threads" "2 ranks: sum 3, parameter 1 then 1.5" ./allreduce
expect_run "3 ranks as processes" "3 ranks: sum 6, parameter 1.5 then 2.25" gsel run -n 3 -- ./allreduce
