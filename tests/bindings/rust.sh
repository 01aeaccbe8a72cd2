#!/bin/sh
# rust.sh BUILD: the Rust crates against the stage: declarations made anew from the installed headers are those checked in,
# layouts are those of C, and every test and documented example passes, without a warning and without a network.
#   CARGO_TARGET_DIR  kept between runs, so that only the first one compiles
. "$SOURCE/tests/install/common.sh"
rust=$SOURCE/bindings/rust
include=$(pkg-config --variable=includedir gsel)
for part in bindings layout; do
  "$rust/gsel-sys/generate.sh" "$include" "$CC" $part > "$WORK/$part"
done
diff "$rust/gsel-sys/src/generated.rs" "$WORK/bindings" > "$WORK/diff" && diff "$rust/gsel-sys/tests/layout/fields.rs" "$WORK/layout" > "$WORK/diff" ||
  fault "gsel-sys is not what generate.sh makes of $include (<: checked in):" "$(head -n 40 "$WORK/diff")"
"$SOURCE/tests/bindings/layout.sh" "$include" "$CC" > "$WORK/c.layout"
export CARGO_TARGET_DIR GSEL_C_LAYOUT="$WORK/c.layout" RUSTFLAGS="-D warnings" CARGO_NET_OFFLINE=true GSEL_SOURCE="$SOURCE"
# Cargo may want to write a lock file, and the source may be read only.
cp -r "$rust" "$WORK/rust"
cd "$WORK/rust"
cargo test --offline --workspace > "$WORK/tests.log" 2>&1 || { cat "$WORK/tests.log"; exit 1; }
expect "lines of tests that passed" 0 "$(grep -c 'test result: FAILED' "$WORK/tests.log" || true)"
grep -c '^test .* ok$' "$WORK/tests.log"
