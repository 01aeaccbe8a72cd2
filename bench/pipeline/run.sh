#!/bin/sh
# run.sh BIN OUT [ROUNDS]: runs bench_pipeline and writes its tables, with the machine and its load, to OUT.
set -eu
bin=$1 out=$2 rounds=${3:-3}
load() {
  cut -d ' ' -f 1-3 /proc/loadavg
}
# What else the machine does is not what is measured.
priority='' words='at the usual priority'
if chrt -f 1 true 2> /dev/null; then
  priority='chrt -f 1' words='at real-time priority (chrt -f 1)'
fi
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
begun=$(date -u '+%Y-%m-%d %H:%M UTC') before=$(load)
$priority "$bin/bench_pipeline" "$rounds" > "$out.part"
{
  cat << END
# Pipelines beside their simulation

\`make bench-pipeline\`: a chain of stages over ranks that are threads, through gsel_pipeline_run. A rank's whole share takes
30 ms forward and 30 ms for each half of backward where kernels sleep, 2 ms each where they compute; 4 and 16 KiB cross a
cut. Figures are the median of $rounds runs. Targets: a run is off by at most 2 % from its simulation, its bubble by at most
5 % of the simulated one; the speed-up on two cores is at least 0.95 of the simulated; an instruction costs less than 2 us.

${cpu:-CPU unknown}, $(nproc) cores; Linux $(uname -r); $words. Begun $begun, load $before; ended $(date -u '+%H:%M UTC'),
load $(load).

END
  cat "$out.part"
} > "$out"
rm -f "$out.part"
