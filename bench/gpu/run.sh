#!/bin/bash
# run.sh BUILD RESULTS SOURCE [double]: what is claimed about speed on a card, measured on this machine's first one (NCCL on
# all of them), as one page RESULTS/gpu-NAME.md with the card's name. BUILD is a build tree or a bundle of bundle.sh,
# SOURCE the working tree. With "double" the same programs run over the double of tests/fake/cuda, with small sizes, and
# the page says so: its numbers are those of a processor. Nothing is installed. It ends within 7 minutes: what is not
# done by then is said to be so.
# TEXT: what examples/gpt trains on; by default the pages of docs/. PYTHON: a python3 that has PyTorch.
set -euo pipefail
build=$(cd "$1" && pwd) results=$2 source=$(cd "$3" && pwd) double=${4:-}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export GSEL_TUNING= LD_LIBRARY_PATH="$build/lib:$build/lib/needed${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export GSEL_PLUGIN_PATH="$build/lib/gsel/plugins-1"
plugin=$build/lib/gsel/plugins-1/cuda.so
text=${TEXT:-$work/text}
[ -n "${TEXT:-}" ] || cat "$source"/docs/*.md > "$work/text"

if [ -n "$double" ]; then
  export LD_LIBRARY_PATH="$build/tests/fixtures/drivers:$LD_LIBRARY_PATH"
  cards=2 elements=4096 bytes=65536
  sizes="1,16,2,8:3" batch=4 executor_steps=6
  label="**Of the double in tests/fake/cuda, on a processor: that the programs run is shown, and what the host does; no
number here is one of a card.**"
else
  cards=$("$build/bin/gsel" devices --json 2> /dev/null | grep -c '"uuid": *"GPU-' || :) # 0 where NVML is missing
  [ "$cards" -gt 0 ] || cards=1
  elements=67108864 bytes=268435456
  sizes="4,256,4,128:10 8,512,8,256:3" batch=8 executor_steps=400
  label="On the first card of this machine; \`make bench-gpu\`."
fi
if ! "$build/bin/bench_device" "$plugin" 4096 > "$work/first" 2> "$work/err"; then
  tail -n 1 "$work/err" >&2
  echo "bench-gpu: no card that this build has kernels for; make bench-gpu DOUBLE=1 runs over a double of the driver" >&2
  exit 1
fi
card=$(sed -n '1s/^cuda on \(.*\), medians.*/\1/p' "$work/first")

# section SECONDS COMMAND...: its output, or the reason why there is none, stands in the page.
section() {
  local limit=$1 left=$((420 - SECONDS)) status=0
  shift
  [ "$limit" -lt "$left" ] || limit=$((left > 0 ? left : 1))
  echo "gsel: $(basename "$1")" >&2
  timeout "$limit" "$@" > "$work/out" 2> "$work/err" || status=$?
  cat "$work/out"
  case $status in
    0) ;;
    77) printf '\nLeft out: %s\n' "$(tail -n 1 "$work/err")" ;;
    124) printf '\nNot done within %s s.\n' "$limit" ;;
    *) printf '\nFailed with status %s: %s\n' "$status" "$(tail -n 1 "$work/err")" && failed="$failed $(basename "$1")" ;;
  esac
}

config() { # SAMPLES: examples/gpt's own settings
  sed "s/^batch *=.*/batch = $1/" "$source/examples/gpt/strategies/ddp.toml" > "$work/gsel.toml"
}

torch_row() { # SIZES: milliseconds of a step, the median behind the first ones
  "$python" -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null || { echo "not installed, or without CUDA" && return; }
  timeout 60 "$python" "$source/bench/train/torch_gpt.py" --config "$work/gsel.toml" --data "$text" --steps 60 --device cuda \
    --sizes "$1" --json "$work/torch.json" > "$work/err" 2>&1 || { echo "failed: $(tail -n 1 "$work/err")" && return; }
  "$python" -c 'import json, statistics, sys
record = json.load(open(sys.argv[1]))
print("%.3f, PyTorch %s" % (1e3 * statistics.median(s["seconds"] for s in record["losses"][10:]), record["torch"]))' "$work/torch.json"
}

page=$work/page failed=
{
  printf '# On a card: %s\n\n%s\n\n' "$card" "$label"
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, Linux $(uname -r)."
  command -v nvidia-smi > /dev/null && [ -z "$double" ] &&
    echo "$(nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader | head -n 1)."
  printf '\n## Kernels beside a copy on the card\n\nTargets: AdamW, sums of squares, casts at least 0.90 of the measured bandwidth of a copy.\n\n'
  section 90 "$build/bin/bench_device" "$plugin" "$elements"
  printf '\n## Calls of NCCL\n\nTarget: the same bandwidth. "added" is the host time that gsel adds to a call. NCCL called directly is blocking; gsel makes its\ncommunicators non-blocking, for which NCCL starts a thread with each call.\n\n'
  section 120 "$build/bin/gsel" run -n "$cards" -- "$build/bin/bench_nccl" "$bytes"
  printf '\n## Host time of the executor for an instruction\n\nTarget: at most 3 us. A chain of layers whose callbacks do nothing; medians (quartiles) of %s steps.%s\n\n' \
    $executor_steps "$([ -n "$double" ] && echo " The time inside the double is taken off in the third column.")"
  echo "| where | instructions of a step | us for each, without callbacks and communication | us for each, with all | calls of the driver for each |"
  echo "|---|--:|--:|--:|--:|"
  printf '| memory of the host | ' && section 30 "$build/bin/bench_executor" "" "" $executor_steps
  printf '| the card | ' && section 30 "$build/bin/bench_executor" cuda "" $executor_steps
  if [ "$cards" -gt 1 ]; then
    for strategy in 'plugin = "ddp"' 'plugin = "zero"\nstage = 3\npersist_elems = 0'; do
      lines=$(printf '[mesh]\ndata = 2\n[strategy.data]\n%b\n' "$strategy")
      printf '| two cards, %s | ' "$(printf '%b' "$strategy" | tr '\n' ' ')" && section 60 "$build/bin/bench_executor" cuda "$lines" $executor_steps
    done
  fi
  config $batch
  printf '\n## A step of examples/gpt\n\nTarget: at most 5 %% above the loop by hand; ahead of PyTorch at the same precision. f32, batch of %s, AdamW with clipping; medians (least to\nmost) of 7 rounds of several steps.\n\n' "$batch"
  echo "| layers, width, heads, context | PyTorch eager ms | gsel ms | by hand ms | gsel / by hand | gsel tokens/s | losses differ by |"
  echo "|---|--:|--:|--:|--:|--:|--:|"
  sed 's/^clip_norm.*/&\nnon_finite = "off"/' "$work/gsel.toml" > "$work/off.toml"
  for size_and_steps in $sizes; do
    size=${size_and_steps%:*} steps=${size_and_steps#*:}
    if [ -n "$double" ]; then torch="not on a double"; else torch=$(torch_row "$size"); fi
    printf '| %s | %s | ' "$size" "$torch"
    section 60 "$build/bin/bench_gpt" "$plugin" "$work/gsel.toml" "$text" "$size" "$steps"
    printf '| %s, `non_finite = "off"` | | ' "$size"
    section 60 "$build/bin/bench_gpt" "$plugin" "$work/off.toml" "$text" "$size" "$steps"
  done
  printf '\nThe loop by hand does not look for the first gradient that is not finite, as gsel does in the rows that do not say "off".\n'
  printf '\n## Ways of a step\n\nOne rank; medians (least to most) of 7 rounds in turns. Target: offload through buffers takes no longer than in place; graphs no longer than plain.\n\n'
  echo "| way | ms | to the first | MB of the card | MB of the host | loss of the last step |"
  echo "|---|--:|--:|--:|--:|--:|"
  mkdir -p "$work/ways"
  way() { # NAME SECTIONS TRAIN: settings in place of those of ddp, and beside those of [train]
    { printf '%b' "$2" && sed -n '/^\[train\]/,$p' "$work/off.toml" && printf '%b' "$3"; } > "$work/ways/$1"
  }
  zero='[strategy.data]\nplugin = "zero"\nstage = '
  way "plain" '' ''
  way "graph" '' 'graph = "on"\n'
  way "bf16" '' 'precision = "bf16"\n'
  way "state offloaded, in place" "${zero}1\noffload = \"state\"\n" 'offload_buffer_bytes = 0\n'
  way "state offloaded, through buffers" "${zero}1\noffload = \"state\"\n" ''
  way "all offloaded, in place" "${zero}3\npersist_elems = 0\noffload = \"all\"\n" 'offload_buffer_bytes = 0\n'
  way "all offloaded, through buffers" "${zero}3\npersist_elems = 0\noffload = \"all\"\n" ''
  last=${sizes##* }
  section 90 "$build/bin/bench_ways" "$text" "${last%:*}" "${last#*:}" "$work/ways/plain" "$work/ways/graph" "$work/ways/bf16" \
    "$work/ways/state offloaded, in place" "$work/ways/state offloaded, through buffers" "$work/ways/all offloaded, in place" \
    "$work/ways/all offloaded, through buffers"
} > "$page"
if [ -n "$failed" ]; then
  cat "$page"
  echo "bench-gpu: failed:$failed" >&2
  exit 1
fi
name=$(printf '%s' "$card" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9]\{1,\}/-/g; s/^-//; s/-$//')
[ -z "$double" ] || name=double
cp "$page" "$results/gpu-$name.md"
echo "gsel: wrote $results/gpu-$name.md"
