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
axis() { printf '[mesh]\n%s = 2\n[strategy.%s]\nplugin = "%s"\n' "$1" "$1" "$2"; } # AXIS PLUGIN
data() { printf '[mesh]\ndata = 2\n[strategy.data]\n%s\n' "$1"; }
{
  cat <<'TEXT'
# Host time of the executor for an instruction

`make bench-executor`: a chain of 26 layers whose callbacks do nothing, 4 micro-batches a rank, sgd. What is left of a step,
divided by its instructions, is gsel's own: making the arguments of callbacks, opening windows, and what the library
enqueues itself. Time in callbacks and waiting for other ranks are taken off. On the doubles of CUDA's driver and NCCL
(tests/fake/cuda), which do with the processor what a card does beside it, it is processor time of the rank's thread without
that inside them. On a card the driver's own calls come on top; the last column says how many there are. Medians (quartiles)
of 400 steps, of 100 with two ranks on the double, of 20 with zero 3. Target: at most 3 us. Each call of NCCL adds what gsel
does until NCCL's thread has enqueued it: it looks and sleeps in turns, which is most of what tp and zero 3 take. `make bench-gpu` measures a call beside NCCL's own. Of
a step that is launched as a graph (`[train] graph`) the instructions are those of the plain step, for which the device has one launch.

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
  row "double, 2 ranks, zero 1" cuda "$(data 'plugin = "zero"
stage = 1')" 100
  row "double, 2 ranks, zero 3" cuda "$(data 'plugin = "zero"
stage = 3
persist_elems = 0')" 20
  for axis in pipeline=pp tensor=tp context=cp; do
    row "double, 2 ranks, ${axis#*=}" cuda "$(axis "${axis%=*}" "${axis#*=}")" 100
  done
  echo
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, Linux $(uname -r), $(c++ --version | head -n 1); load $(cut -d ' ' -f 1-3 /proc/loadavg)."
} > "$page"
cp "$page" "$out"
