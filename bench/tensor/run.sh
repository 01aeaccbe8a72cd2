#!/bin/sh
# run.sh BIN OUT [DATA]: runs bench_decode and, with DATA, examples/gpt at a width where a tensor axis is worth it, and
# writes their tables, with the machine and its load, to OUT. About three minutes on two free cores.
set -eu
bin=$1 out=$2 data=${3:-} here=$(dirname "$0")
load() {
  cut -d ' ' -f 1-3 /proc/loadavg
}
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
begun=$(date -u '+%Y-%m-%d %H:%M UTC') before=$(load)
"$bin/bench_decode" > "$out.part"
if [ -n "$data" ]; then
  "$here/gpt.sh" "$bin" "$data" >> "$out.part"
fi
{
  cat << END
# A model shared by two ranks

\`make bench-tensor\`: a decoder that makes one token after another, on one rank and on two ranks of a tensor axis, through
gsel_pipeline_run with one micro-batch of one sample; and training steps of examples/gpt. Ranks of the decoder are threads,
those of examples/gpt processes; what is compared runs in turns. "Between ranks" is the time in collectives, "library" what
is neither there nor in callbacks. Targets: two ranks take at most 0.65 of one rank's time for a token where memory is read
fast enough by two, and train at least 1.7 times as fast.

${cpu:-CPU unknown}, $(nproc) cores; Linux $(uname -r). Begun $begun, load $before; ended $(date -u '+%H:%M UTC'), load
$(load).

## Decoding

END
  cat "$out.part"
} > "$out"
rm -f "$out.part"
