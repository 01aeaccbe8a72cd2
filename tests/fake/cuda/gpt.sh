#!/bin/sh
# gpt.sh BIN SOURCE DRIVERS: the program of examples/gpt, as it is built for hardware, with the doubles under the names of
# the vendor's libraries in DRIVERS. It trains on a device where the configuration says so and comes to what it comes to on
# the host; what has no kernels is refused by name.
set -eu
bin=$1
source=$2
drivers=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export OPENBLAS_NUM_THREADS=1 GSEL_TUNING=
cat "$source"/docs/*.md > "$work/text"
# AdamW divides a gradient by its own size, so gradients that are rounding alone move parameters; SGD does not.
sed 's/^batch *=.*/batch = 4/; s/^optimizer.*/optimizer = "sgd"/; s/^learning_rate.*/learning_rate = 0.1/' \
  "$source/examples/gpt/strategies/ddp.toml" > "$work/host.toml"
{ cat "$work/host.toml"; printf '[select]\naccelerator = "cuda"\n'; } > "$work/cuda.toml"

fail() {
  echo "gpt.sh: $*" >&2
  exit 1
}
gpt() { # NAME [OPTION...]: NAME.toml; leaves NAME.json, NAME.out and NAME.err
  name=$1
  shift
  "$bin/gsel" run -n 2 -- "$bin/gpt" --config "$work/$name.toml" --data "$work/text" --steps 3 --quiet --layers 1 \
    --width 16 --heads 2 --context 8 --json "$work/$name.json" --sample 8 "$@" > "$work/$name.out" 2> "$work/$name.err"
}

gpt host || fail "the host: $(cat "$work/host.err")"
export LD_LIBRARY_PATH="$drivers"
gpt cuda || fail "a device: $(cat "$work/cuda.err")"
! grep -q "fake cuda:" "$work/cuda.err" || fail "the double reports: $(cat "$work/cuda.err")"
"$bin/gpt-compare" "$work/host.json" "$work/cuda.json" > "$work/compared" || fail "a device against the host: $(cat "$work/compared")"
sed '1,/^---/d' "$work/host.out" > "$work/host.text"
sed '1,/^---/d' "$work/cuda.out" > "$work/cuda.text"
cmp -s "$work/host.text" "$work/cuda.text" || fail "the model writes another text on a device: $(cat "$work/cuda.text")"

! gpt cuda --attention ring || fail "ring attention trains on a device"
grep -q "ring attention has no kernels for a GPU; use --attention whole" "$work/cuda.err" ||
  fail "ring attention: $(cat "$work/cuda.err")"
! gpt cuda --check || fail "kernels are checked on a device"
grep -q "kernels are checked on memory of the host" "$work/cuda.err" || fail "--check: $(cat "$work/cuda.err")"

# A loss that is not finite is known at the end of the step.
sed -i 's/^learning_rate.*/learning_rate = 1e30/; s/^clip_norm.*/clip_norm = 0.0/' "$work/cuda.toml"
! gpt cuda || fail "trains with a learning rate of 1e30"
grep -q "step 2: the loss is not a finite number; try a smaller train.learning_rate" "$work/cuda.err" ||
  fail "a learning rate of 1e30: $(cat "$work/cuda.err")"

# The device that a launcher has given the rank: the second one, and one that is not there.
one() { # UUID
  GSEL_DEVICE=$1 "$bin/gpt" --config "$work/host.toml" --data "$work/text" --steps 1 --quiet --layers 1 --width 16 --heads 2 \
    --context 8 > "$work/one.out" 2> "$work/one.err"
}
one GPU-22222222-2222-2222-2222-222222222222 || fail "the second device: $(cat "$work/one.err")"
! one GPU-99999999-2222-2222-2222-222222222222 || fail "trains on a device that is not there"
grep -q "GPU-99999999-2222-2222-2222-222222222222 was asked for" "$work/one.err" || fail "no such device: $(cat "$work/one.err")"
