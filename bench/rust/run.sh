#!/bin/sh
# run.sh BUILD PAGE: what a call of the Rust crate costs over the same call in C, against BUILD installed beside itself.
#   PAGE  the table, with the machine and the load it was measured under
set -eu
build=$1 page=$2
here=$(cd "$(dirname "$0")" && pwd)
stage=$build/bench-stage
cmake --install "$build" --strip --prefix "$stage" > "$build/bench-stage.log"
pc=$(find "$stage" -name gsel.pc)
export PKG_CONFIG_PATH="$(dirname "$pc")" LD_LIBRARY_PATH="$(cd "$(dirname "$pc")/.." && pwd)" CARGO_TARGET_DIR="$build/bench-cargo"
cargo build --offline --release --manifest-path "$here/Cargo.toml" 2> "$build/bench-cargo.log" || { cat "$build/bench-cargo.log"; exit 1; }
load=$(cut -d ' ' -f 1 /proc/loadavg)
{
  echo "# What a call from Rust costs"
  echo
  echo "An allreduce of 8 bytes through \`gsel::Comm\` and through \`gsel_allreduce\` in C, in blocks of 1,000 calls that"
  echo "alternate; what Rust adds is the difference within each of 1,001 pairs of blocks. Made by \`make bench-rust\`."
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, load $load before; $(rustc --version | cut -d ' ' -f 1,2), $(cc --version | head -n 1)."
  echo
  "$CARGO_TARGET_DIR/release/bench-rust"
} > "$build/bench-rust.md"
cp "$build/bench-rust.md" "$page"
