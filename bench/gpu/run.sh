#!/bin/bash
# run.sh BUILD RESULTS SOURCE [double]: what is claimed about speed on a card, measured on this machine's first one (NCCL on
# every card, hidden communication on two), as one page RESULTS/gpu-NAME.md with the card's name. BUILD is a build tree or
# a bundle of bundle.sh, SOURCE the working tree. With "double" the same programs run over the double of tests/fake/cuda,
# with small sizes, and the page says so: its numbers are those of a processor. Nothing is installed. On a card it ends
# within 270 s, and tests/gpu/run.sh within 210 s; what is not done by then is said to be so.
# TEXT: what examples/gpt trains on; by default the pages of docs/. PYTHON: a python3 that has PyTorch.
set -euo pipefail
build=$(cd "$1" && pwd) results=$2 source=$(cd "$3" && pwd) double=${4:-}
limit=265
[ -z "$double" ] || limit=500
. "$source/bench/gpu/common.sh"
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
  sizes="1,16,2,8:2" batch=4 executor_steps=6 slack=3
  buckets='bucket_bytes = 16384\n' first_bucket='first_bucket_bytes = 4096\n' persist='persist_elems = 0\n' hidden_steps=1
  label="**Of the double in tests/fake/cuda, on a processor: that the programs run is shown, and what the host does; no
number here is one of a card.**"
else
  find_in_python libcublasLt.so.1 libnccl.so.2
  cards=$(bounded 20 "$build/bin/gsel" devices --json 2> /dev/null | grep -c '"uuid": *"GPU-' || :) # 0 where NVML is missing
  [ "$cards" -gt 0 ] || cards=1
  elements=67108864 bytes=268435456
  sizes="4,256,4,128:10 8,512,8,256:3" batch=8 executor_steps=400 slack=1
  buckets= first_bucket= persist= hidden_steps=3
  label="On the first card of this machine; \`make bench-gpu\`."
fi
if ! bounded 60 "$build/bin/bench_device" "$plugin" 4096 > "$work/first" 2> "$work/err"; then
  tail -n 1 "$work/err" >&2
  echo "bench-gpu: no card that this build has kernels for; make bench-gpu DOUBLE=1 runs over a double of the driver" >&2
  exit 1
fi
card=$(sed -n '1s/^cuda on \(.*\), medians.*/\1/p' "$work/first")

failed=
# part BEFORE AFTER SECONDS COMMAND...: its output, or the reason why there is none, stands in the page.
part() {
  local before=$1 after=$2 most=$(($3 * slack)) status=0
  shift 3
  echo "gsel: $(basename "$1")" >&2
  : > "$work/out"
  : > "$work/err"
  bounded $most "$@" > "$work/out" 2> "$work/err" || status=$?
  cat "$work/out"
  case $status in
    0) ;;
    77) printf '%sLeft out: %s%s\n' "$before" "$(tail -n 1 "$work/err")" "$after" ;;
    124 | 137) [ "$given" -gt 0 ] && printf '%sNot done within %s s.%s\n' "$before" "$given" "$after" ||
      printf '%sNot begun: the %s s of all were over.%s\n' "$before" "$limit" "$after" ;;
    *) printf '%sFailed with status %s: %s%s\n' "$before" "$status" "$(tail -n 1 "$work/err")" "$after" && failed="$failed $(basename "$1")" ;;
  esac
}
section() { part $'\n' '' "$@"; }
row() { part '' ' |' "$@"; } # the rest of a row of a table

settings() { # FILE SAMPLES SECTIONS TRAIN: examples/gpt's own, with other sections before [train], and more lines in it
  { printf '%b' "$3" && sed -n "/^\[train\]/,\$p" "$source/examples/gpt/strategies/ddp.toml" | sed "s/^batch *=.*/batch = $2/" &&
    printf '%b' "$4"; } > "$1"
}

page=$work/page
{
  printf '# On a card: %s\n\n%s\n\n' "$card" "$label"
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, Linux $(uname -r)."
  command -v nvidia-smi > /dev/null && [ -z "$double" ] &&
    echo "$(bounded 10 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader | head -n 1)."

  printf '\n## Kernels beside a copy on the card\n\nTargets: AdamW, sums of squares, casts at least 0.90 of the measured bandwidth of a copy.\n\n'
  section 45 "$build/bin/bench_device" "$plugin" "$elements"

  printf '\n## Calls of NCCL\n\nTarget: the same bandwidth. "added" is the host time that gsel adds to a call. NCCL called directly is blocking; gsel makes its\ncommunicators non-blocking, for which NCCL starts a thread with each call.\n\n'
  section 60 "$build/bin/gsel" run -n "$cards" -- "$build/bin/bench_nccl" "$bytes"

  printf '\n## Host time of the executor for an instruction\n\nTarget: at most 3 us. A chain of layers whose callbacks do nothing; medians (quartiles) of %s steps.%s\n\n' \
    $executor_steps "$([ -n "$double" ] && echo " The time inside the double is taken off in the third column.")"
  echo "| where | instructions of a step | us for each, without callbacks and communication | us for each, with all | calls of the driver for each |"
  echo "|---|--:|--:|--:|--:|"
  printf '| memory of the host | ' && row 15 "$build/bin/bench_executor" "" "" $executor_steps
  printf '| the card | ' && row 15 "$build/bin/bench_executor" cuda "" $executor_steps
  if [ "$cards" -gt 1 ]; then
    for strategy in 'plugin = "ddp"' 'plugin = "zero"\nstage = 3\npersist_elems = 0'; do
      lines=$(printf '[mesh]\ndata = 2\n[strategy.data]\n%b\n' "$strategy")
      printf '| two cards, %s | ' "$(printf '%b' "$strategy" | tr '\n' ' ')" && row 20 "$build/bin/bench_executor" cuda "$lines" $executor_steps
    done
  fi

  torch_version=$(bounded 10 "$python" -c 'import importlib.metadata; print(importlib.metadata.version("torch"))' 2> /dev/null) ||
    torch_version="not installed"
  settings "$work/default.toml" $batch '' ''
  settings "$work/off.toml" $batch '' 'non_finite = "off"\n'
  settings "$work/bf16.toml" $batch '' 'non_finite = "off"\nprecision = "bf16"\n'
  cat <<TEXT

## A step of examples/gpt

Targets: at most 5 % above the loop by hand; ahead of PyTorch at the same precision. Batch of $batch, AdamW with clipping;
medians (least to most), of 7 rounds of several steps, or of 50 steps of PyTorch.

- Products of matrices are by kernels of examples/gpt ("plain") or by cuBLASLt, which the loop by hand then takes as well.
  PyTorch takes cuBLAS, so its rows stand beside those of cuBLASLt.
- f32 is f32 everywhere: TF32 is off in PyTorch, as it is by default, and cuBLASLt is asked for sums and products in f32.
- bf16 of gsel is \`precision = "bf16"\`: parameters, values and their gradients in 16 bits, sums in f32, f32 parameters for
  the optimizer. bf16 of PyTorch is \`torch.autocast(bfloat16)\`: products in 16 bits with sums in f32; layer norms,
  softmax, loss and the sums of residuals in f32; parameters in f32, which are rounded in each step.
- PyTorch ($torch_version) is eager, with attention written out as in gsel.
- With \`non_finite = "off"\` gsel does not look for the first gradient that is not finite. Nor do the loop by hand and PyTorch.

| layers, width, heads, context | who | ms | by hand ms | gsel / by hand | tokens/s | losses differ by |
|---|---|--:|--:|--:|--:|--:|
TEXT
  for size_and_steps in $sizes; do
    size=${size_and_steps%:*} steps=${size_and_steps#*:}
    gpt() { # WHO CONFIG PRODUCTS
      printf '| %s | gsel, %s | ' "$size" "$1" && row 25 "$build/bin/bench_gpt" "$plugin" "$work/$2.toml" "$text" "$size$3" "$steps"
    }
    torch() { # PRECISION; what fails in PyTorch is no failure of gsel's
      local failed_before=$failed
      printf '| %s | PyTorch, %s | ' "$size" "$1"
      if [ -n "$double" ]; then echo "not on a double | | | | |"; else row 40 "$python" "$source/bench/gpu/torch_row.py" "$work/off.toml" "$text" "$size" "$1"; fi
      failed=$failed_before
    }
    gpt 'f32, plain, `non_finite` as by default' default ''
    gpt 'f32, plain' off ''
    gpt 'f32, cuBLASLt' off ,cublaslt
    torch f32
    gpt 'bf16, plain' bf16 ''
    gpt 'bf16, cuBLASLt' bf16 ,cublaslt
    torch bf16
  done

  cat <<TEXT

## Ways of a step

One rank; medians (least to most) of 7 rounds in turns. Targets: offload through buffers takes no longer than in place; graphs
no longer than plain. Rows of one precision end with the same loss, but for rounding.

| way | ms | to the first | MB of the card | MB of the host | loss of the last step |
|---|--:|--:|--:|--:|--:|
TEXT
  mkdir -p "$work/ways" "$work/hidden"
  ways() { # SECONDS PRODUCTS NAME...
    local most=$1 products=$2 last=${sizes##* }
    shift 2
    section "$most" "$build/bin/bench_ways" "$text" "${last%:*}$products" "${last#*:}" "${@/#/$work/ways/}"
  }
  way() { settings "$work/ways/$1" $batch "$2" "non_finite = \"off\"\n$3"; } # NAME SECTIONS TRAIN
  zero='[strategy.data]\nplugin = "zero"\nstage = '
  for products in '' ', cuBLASLt'; do
    way "plain$products" '' ''
    way "graph$products" '' 'graph = "on"\n'
    way "bf16$products" '' 'precision = "bf16"\n'
  done
  way "state offloaded, in place" "${zero}1\noffload = \"state\"\n" 'offload_buffer_bytes = 0\n'
  way "state offloaded, through buffers" "${zero}1\noffload = \"state\"\n" ''
  way "all offloaded, in place" "${zero}3\npersist_elems = 0\noffload = \"all\"\n" 'offload_buffer_bytes = 0\n'
  way "all offloaded, through buffers" "${zero}3\npersist_elems = 0\noffload = \"all\"\n" ''
  ways 60 '' plain graph bf16 'state offloaded, in place' 'state offloaded, through buffers' 'all offloaded, in place' \
    'all offloaded, through buffers'
  ways 30 ,cublaslt 'plain, cuBLASLt' 'graph, cuBLASLt' 'bf16, cuBLASLt'

  cat <<TEXT

## Hidden communication

Target: all of it, but for the ends. Two ranks with a card each, $batch samples each; medians (least to most) of 5 rounds in turns
with the same step under \`overlap = false\`. The times inside a step that a report has are the host's on a device, so
"exposed" is the step, less what is left of the step without overlap when its communication is taken off. "The ends" are the
last reduction, and the allgather that nothing stands before or that nothing follows.

| strategy | reductions begun before backward had ended | allgathers | ms | without overlap ms | its communication ms | exposed ms | the ends ms |
|---|--:|--:|--:|--:|--:|--:|--:|
TEXT
  hidden() { # NAME OPTIONS
    local lines="[mesh]\ndata = 2\n[strategy.data]\n$2$buckets"
    settings "$work/hidden/$1" $((2 * batch)) "$lines" 'non_finite = "off"\n'
    settings "$work/hidden/$1.off" $((2 * batch)) "${lines}overlap = false\n" "non_finite = \"off\"\ntimeline = \"$work/hidden\"\n"
  }
  for products in '' ', cuBLASLt'; do
    hidden "ddp$products" "plugin = \"ddp\"\n$first_bucket"
    hidden "zero 1$products" "plugin = \"zero\"\nstage = 1\n"
    hidden "zero 2$products" "plugin = \"zero\"\nstage = 2\n"
    hidden "zero 3$products" "plugin = \"zero\"\nstage = 3\n$persist"
    if [ "$cards" -lt 2 ]; then printf '\nLeft out: one card; two are needed.\n' && break; fi
    last=${sizes##* }
    section 40 "$build/bin/gsel" run -n 2 -- "$build/bin/bench_hidden" "$text" "${last%:*}$([ -z "$products" ] || echo ,cublaslt)" $hidden_steps \
      "$work/hidden/ddp$products" "$work/hidden/zero 1$products" "$work/hidden/zero 2$products" "$work/hidden/zero 3$products"
  done
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
