#!/bin/sh
# run.sh BIN OUT [SECONDS [RUNS]]: runs bench_plan and writes its table, with the machine and its load, to OUT.
set -eu
bin=$1 out=$2 seconds=${3:-300} runs=${4:-5}
load() {
  cut -d ' ' -f 1-3 /proc/loadavg
}
# What others do is not what is measured: the group of processes of this script has a higher priority than theirs.
words='at the usual priority'
if { echo -20 > /proc/self/autogroup; } 2> /dev/null; then
  words='with a higher priority than other groups of processes (/proc/PID/autogroup)'
fi
# Old versions of OpenBLAS do not know new processors, and take slow kernels for them.
if grep -q avx512f /proc/cpuinfo; then
  export OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE:-SkylakeX}
fi
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
begun=$(date -u '+%Y-%m-%d %H:%M UTC') before=$(load)
"$bin/bench_plan" "$seconds" "$runs" > "$out.part"
"$bin/bench_plan" --finalists > "$out.finalists"
{
  cat << END
# The planner beside this machine

\`make bench-plan\`: the GPT of examples/gpt (4 layers, width 256, 3.3 million parameters, 128 bytes of context), 8 samples a
step, AdamW with clipping, on 1 to 4 ranks that are processes. The planner measures the machine: layers by steps of one rank
alone and of two at once, links by the collectives that programs make. Each configuration is then compiled, verified and
simulated from that, and run: 10 steps, of which the median of the last 8 counts. Ranks beyond the cores share them, in the
simulation as well. Forecasts and times are medians over runs; errors are those of each run against the forecast that was
made from the last measurement before it. A run counts if others used less than a quarter of a core meanwhile, and if a
matrix product takes as long before it and behind it as when the machine was measured (within 6 %): the processors of this
machine are virtual.

${cpu:-CPU unknown}, $(nproc) cores; Linux $(uname -r); $words.
Begun $begun, load $before; ended $(date -u '+%H:%M UTC'), load $(load).

END
  cat "$out.part"
  printf '\n## How long finalists take\n\n'
  sed 's/^/- /' "$out.finalists"
} > "$out"
rm -f "$out.part" "$out.finalists"
