#!/bin/sh
# gpt.sh BIN SOURCE DRIVERS: the program of examples/gpt, as it is built for hardware, with the doubles under the names of
# the vendor's libraries in DRIVERS. It trains on a device where the configuration says so and comes to what it comes to on
# the host, also with ring and fused attention and with products by cuBLASLt; what has no kernels is refused by name.
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

# Ring attention, where ranks have parts of the positions; fused attention; products by the double of cuBLASLt.
sed 's/^batch *=.*/batch = 4/; s/^optimizer.*/optimizer = "sgd"/; s/^learning_rate.*/learning_rate = 0.1/' \
  "$source/examples/gpt/strategies/cp-ring.toml" > "$work/ring.toml"
printf '[select]\naccelerator = "cuda"\n' >> "$work/ring.toml"
near_host() { # NAME: its losses are the host's, and it lets the double find nothing
  ! grep -q "fake cuda:" "$work/$1.err" || fail "$1: the double reports: $(cat "$work/$1.err")"
  "$bin/gpt-compare" "$work/host.json" "$work/$1.json" > "$work/compared" || fail "$1 against the host: $(cat "$work/compared")"
}
gpt ring --attention ring || fail "ring attention: $(cat "$work/ring.err")"
near_host ring
gpt cuda --attention fused --products cublaslt || fail "fused attention, cuBLASLt: $(cat "$work/cuda.err")"
near_host cuda
mkdir "$work/broken"
: > "$work/broken/libcublasLt.so.13"
: > "$work/broken/libcublasLt.so.12"
LD_LIBRARY_PATH="$work/broken:$drivers"
! gpt cuda --products cublaslt || fail "multiplies without cuBLASLt"
grep -q "no cuBLASLt: .* use --products plain" "$work/cuda.err" || fail "no cuBLASLt: $(cat "$work/cuda.err")"
gpt cuda --products auto || fail "--products auto: $(cat "$work/cuda.err")"
near_host cuda
LD_LIBRARY_PATH="$drivers"
! gpt cuda --attention ring --width 300 --heads 2 || fail "ring attention with a head of 150 trains on a device"
grep -q "heads of up to 128 on a GPU; use --attention whole" "$work/cuda.err" || fail "a head of 150: $(cat "$work/cuda.err")"

# In bf16 by the configuration alone: other parameters, a loss nearby, and a text.
sed '/^\[train\]/a precision = "bf16"' "$work/cuda.toml" > "$work/bf16.toml"
losses() { grep -o '"loss": [0-9.]*' "$work/$1.json" | awk '{print $2}'; }
losses host > "$work/host.losses"
for how in "--attention whole" "--attention fused --products cublaslt"; do
  gpt bf16 $how || fail "bf16 $how: $(cat "$work/bf16.err")"
  ! grep -q "fake cuda:" "$work/bf16.err" || fail "bf16 $how: the double reports: $(cat "$work/bf16.err")"
  losses bf16 | paste - "$work/host.losses" | awk '{d = $1 - $2; if (d < 0) d = -d; if (d > 0.02) bad = 1} END {exit bad || NR < 3}' ||
    fail "bf16 $how: losses $(losses bf16 | tr '\n' ' '), on the host in f32 $(tr '\n' ' ' < "$work/host.losses")"
  ! losses bf16 | cmp -s - "$work/host.losses" || fail "bf16 $how: the losses are those of f32"
  [ -s "$work/bf16.out" ] || fail "bf16 $how: the model wrote nothing"
done

# One rank whose steps are launched as a graph from the third on: the losses of plain steps, to the last digit.
sed '/^\[train\]/a graph = "on"' "$work/cuda.toml" > "$work/graph.toml"
alone() { # NAME
  "$bin/gpt" --config "$work/$1.toml" --data "$work/text" --steps 5 --quiet --layers 1 --width 16 --heads 2 --context 8 \
    --json "$work/alone.json" > "$work/$1.out" 2> "$work/$1.err" || fail "$1 on one rank: $(cat "$work/$1.err")"
  ! grep -q "fake cuda:" "$work/$1.err" || fail "$1 on one rank: the double reports: $(cat "$work/$1.err")"
  grep -o '"loss": [0-9.]*' "$work/alone.json"
}
alone cuda > "$work/plain.losses"
alone graph > "$work/graph.losses"
cmp -s "$work/plain.losses" "$work/graph.losses" || fail "graphs: $(cat "$work/graph.losses"), plain: $(cat "$work/plain.losses")"
[ "$(wc -l < "$work/graph.losses")" -ge 5 ] || fail "graphs: $(cat "$work/graph.losses")"
! gpt graph || fail "two ranks are launched as a graph"
grep -q "a graph with nccl allreduce is launched, which this double has not recorded" "$work/graph.err" || fail "two ranks: $(cat "$work/graph.err")"

! gpt cuda --check || fail "kernels are checked on a device"
grep -q "checks on memory of the host" "$work/cuda.err" || fail "--check: $(cat "$work/cuda.err")"

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
