#!/bin/sh
# executor.sh BUILD OUT: host time of the executor for an instruction, on the host and on the double of CUDA's driver, as a
# page written to OUT. On a card make bench-gpu measures it.
set -eu
build=$1 out=$2
page=$(mktemp)
trap 'rm -f "$page"' EXIT
export GSEL_TUNING=
row() { # WHERE ACCELERATOR STRATEGY STEPS [GRAPH]
  echo "gsel: bench_executor, $1" >&2
  if [ -n "$2" ]; then
    printf '| %s | ' "$1" && LD_LIBRARY_PATH=$build/tests/fixtures/drivers "$build/bin/bench_executor" "$2" "$3" "$4" "${5:-off}"
  else
    printf '| %s | ' "$1" && "$build/bin/bench_executor" "" "$3" "$4"
  fi
}
data() { printf '[mesh]\ndata = 2\n[strategy.data]\n%s\n' "$1"; }
{
  cat <<'TEXT'
# Host time of the executor for an instruction

`make bench-executor`: a chain of 26 layers whose callbacks do nothing, 4 micro-batches a rank, sgd. What is left of a step,
divided by its instructions, is gsel's own: making the arguments of callbacks, opening windows, and what the library
enqueues itself. Time in callbacks and waiting for other ranks are taken off, and so is the time inside the doubles of
CUDA's driver and NCCL (tests/fake/cuda), which do with the processor what a card does beside it. On a card the driver's own
calls come on top; the last column says how many there are. Medians (quartiles) of 400 steps, of 100 with two ranks on the
double. Target: at most 3 us. Not here is zero 3 on the double, where a step is a collective for every third instruction:
a call of NCCL has its own time of the host, which `make bench-gpu` measures beside NCCL's. Of a step that is launched as a
graph (`[train] graph`) the instructions are those of the plain step, for which the device has one launch.

| where | instructions of a step | us for each | us for each, with all | calls of the driver and NCCL for each |
|---|--:|--:|--:|--:|
TEXT
  row "host, 1 rank" "" "" 400
  row "host, 2 ranks, ddp" "" "$(data 'plugin = "ddp"')" 400
  row "host, 2 ranks, zero 3" "" "$(data 'plugin = "zero"
stage = 3
persist_elems = 0')" 400
  row "double, 1 rank" cuda "" 400
  row "double, 1 rank, launched as a graph" cuda "" 400 on
  row "double, 2 ranks, ddp" cuda "$(data 'plugin = "ddp"')" 100
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, Linux $(uname -r), $(c++ --version | head -n 1); load $(cut -d ' ' -f 1-3 /proc/loadavg)."
} > "$page"
cp "$page" "$out"
