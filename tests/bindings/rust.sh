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
"$SOURCE/tests/bindings/complete.sh" "$SOURCE/lib/api/libgsel.map" "$rust/gsel/src" "$rust/omitted.txt"
export CARGO_TARGET_DIR GSEL_C_LAYOUT="$WORK/c.layout" RUSTFLAGS="-D warnings" CARGO_NET_OFFLINE=true
export RUST_BACKTRACE=0 # of panics that tests make: under valgrind each costs many seconds
# The crates are copied, since cargo writes beside them and the source may be read only. They find the library in a folder
# whose name has a blank.
cp -r "$rust" "$WORK/rust"
ln -s "$STAGE/usr" "$WORK/a prefix"
export PKG_CONFIG_PATH="$WORK/a prefix${STAGE_LIB#"$STAGE/usr"}/pkgconfig"
cd "$WORK/rust"
quietly() { # COMMAND...: shows what it says if it fails
  "$@" > "$WORK/said" 2>&1 || { cat "$WORK/said"; exit 1; }
}
quietly cargo test --offline --workspace
passed=$(grep -c '^test .* ok$' "$WORK/said")
DOCS_RS=1 PKG_CONFIG=/nonexistent CARGO_TARGET_DIR="$WORK/docs" RUSTDOCFLAGS="-D warnings" quietly cargo doc --offline --no-deps

# The examples, on this text: on two ranks what they are on one.
cat "$SOURCE"/docs/*.md > "$WORK/text"
examples=$CARGO_TARGET_DIR/debug/examples
expect_run "3 ranks of allreduce" "sum of ranks: 3
sum of ranks: 3
sum of ranks: 3" gsel run -n 3 -- "$examples/allreduce"
case $("$examples/devices" cpu) in "cpu "*"asked for"*) ;; *) fault "devices cpu: $("$examples/devices" cpu)" ;; esac
# same_on_two EXAMPLE STEPS: the same losses on one rank and on two, and the last is below the first
same_on_two() {
  config=$WORK/rust/gsel/examples/train_mlp.toml
  one=$(gsel run -n 1 --config "$config" -- "$examples/$1" "$WORK/text" "$2") || fault "$1 failed on one rank: $one"
  expect_run "$1 on 2 ranks" "$one" gsel run -n 2 --config "$config" -- "$examples/$1" "$WORK/text" "$2"
  printf '%s\n' "$one" | awk '{ if (NR == 1) first = $NF; last = $NF } END { exit !(NR > 1 && last > 0 && last < 0.9 * first) }' ||
    fault "$1 did not learn: $one"
}
same_on_two train_mlp 40
same_on_two data_parallel 100

# Ranks as threads, failures included, under valgrind: no error, nothing lost; without inward, which leaks. Of plans only what ends in a moment there.
if command -v valgrind > /dev/null; then
  for test in collectives training elastic failures closures tasks planning sizes "plan what_is_wrong the_machine_and"; do
    set -- $test
    program=$(ls -t "$CARGO_TARGET_DIR"/debug/deps/$1-* | grep -v '\.d$' | head -n 1)
    shift
    quietly valgrind --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite "$program" --test-threads=1 "$@"
  done
else
  echo "left out: no valgrind found"
fi
echo "$passed tests passed"
