#!/bin/sh
# rust_static.sh BUILD: with GSEL_STATIC=1 a Rust program has libgsel and the strategies in it. It trains where there is
# neither libgsel.so nor a plugin, to the losses of the one that finds both. With GSEL_LIB_DIR pkg-config is not asked.
#   CARGO_TARGET_DIR  kept between runs, so that only the first one compiles
. "$SOURCE/tests/install/common.sh"
cp -r "$SOURCE/bindings/rust" "$WORK/rust"
cat "$SOURCE"/docs/*.md > "$WORK/text"
export RUSTFLAGS="-D warnings" CARGO_NET_OFFLINE=true
cd "$WORK/rust"
build() { # HOW EXAMPLE
  CARGO_TARGET_DIR=$CARGO_TARGET_DIR/$1 cargo build --offline -p gsel --example "$2" > "$WORK/log" 2>&1 ||
    { cat "$WORK/log"; exit 1; }
  cp "$CARGO_TARGET_DIR/$1/debug/examples/$2" "$WORK/$1"
}
build shared train_mlp
(export GSEL_STATIC=1 && build static train_mlp)
(export GSEL_STATIC=1 GSEL_LIB_DIR="$STAGE_LIB" PKG_CONFIG=/nonexistent && build static_dir allreduce)
train() { gsel run -n 2 --config "$WORK/rust/gsel/examples/train_mlp.toml" -- "$@" "$WORK/text" 10; }
losses=$(train "$WORK/shared") || fault "train_mlp failed: $losses"

# The command stays; its library's plugins are out of reach of a program that has none.
expect_alone "$WORK/static"
expect_alone "$WORK/static_dir"
expect_run "train_mlp with libgsel.a" "$losses" train "$WORK/static"
expect_run "2 ranks of allreduce with libgsel.a" "sum of ranks: 1
sum of ranks: 1" gsel run -n 2 -- "$WORK/static_dir"
