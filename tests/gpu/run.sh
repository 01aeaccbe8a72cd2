#!/bin/bash
# run.sh BUILD SOURCE [double]: the tests that a machine with a card can run, on it; `make test-gpu`. BUILD is a build tree
# or a bundle of bench/gpu/bundle.sh. With "double" they run over the double of tests/fake/cuda, which shows that they
# can be run. Prints a line for each; exit status 1 when one fails, or when there is no card. On a card it ends within 210 s;
# a test that is not done by then has failed. TESTS: the names of some of them; by default all.
#
# The tests of training compare with the host bit for bit, on a card too: callbacks work on copies in memory of the host,
# and gsel's own kernels are built to give the host's bits. Ranks that find fewer cards than they are share them, through
# memory of the host. What only the double can tell is not among them:
#   cuda_driver, cuda_double, cuda_nccl*           they are tests of the doubles
#   cuda_plugins, cuda_comm_faults, _train_faults  drivers and libraries that lack or refuse something; a card that fails
#   cuda_train_lost, _lost_calls                   a card that fails or is gone at some moment, or is another process's
#   cuda_comm*                                     two to four cards, and what the double says of unordered work
#   cuda_train_allocations, _memory, _numbers, _callbacks   what the double counts, and what it says of a callback
#   cuda_train_check                               kernels that write where they may not
#   cuda_train_device, _evaluation                 a machine of four cards with 4 GiB each, or as much as it is told
#   cuda_train_waits                               a kernel that never ends
set -euo pipefail
build=$(cd "$1" && pwd) source=$(cd "$2" && pwd) double=${3:-}
limit=205
[ -z "$double" ] || limit=1800 # nothing is held
. "$source/bench/gpu/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export GSEL_TUNING= GSEL_TEST_BIN=$build GSEL_TEST_DATA=$source/tests/data OPENBLAS_NUM_THREADS=1
export LD_LIBRARY_PATH="$build/lib:$build/lib/needed${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -n "$double" ]; then export LD_LIBRARY_PATH="$build/tests/fixtures/drivers:$LD_LIBRARY_PATH"; else find_in_python libcublasLt.so.1 libnccl.so.2; fi
export GSEL_PLUGIN_PATH="$build/lib/gsel/plugins-1" GSEL_TEST_GPU=1

ran=0 failed=0 most=75
[ -z "$double" ] || most=600
tail_of_output() { sed 's/^/         /' "$work/out" | tail -n 60; }
check() { # NAME COMMAND...: 77 is a test that cannot run here, with the reason as its last line
  local name=$1 status=0 began=$SECONDS
  shift
  case " ${TESTS:-$name} " in *" $name "*) ;; *) return ;; esac
  : > "$work/out"
  bounded $most "$@" > "$work/out" 2>&1 || status=$?
  case $status in
    0) ran=$((ran + 1)) && echo "ok       $name, $((SECONDS - began)) s" ;;
    77) echo "left out $name: $(tail -n 1 "$work/out")" ;;
    124 | 137)
      failed=$((failed + 1))
      if [ "$given" -gt 0 ]; then echo "FAILED   $name, not done within $given s" && tail_of_output; else echo "FAILED   $name, not begun within $limit s"; fi
      ;;
    *) failed=$((failed + 1)) && echo "FAILED   $name, status $status" && tail_of_output ;;
  esac
}

cat "$source"/docs/*.md > "$work/text"
export build source work
gpt() { # NAME: examples/gpt, one rank, three steps, with the configuration of $work/NAME.toml
  "$build/bin/gpt" --config "$work/$1.toml" --data "$work/text" --steps 3 --quiet --layers 2 --width 64 --heads 4 \
    --context 32 --json "$work/$1.json"
}
trains_as_on_the_host() {
  sed 's/^batch *=.*/batch = 4/; s/^optimizer.*/optimizer = "sgd"/; s/^learning_rate.*/learning_rate = 0.1/' \
    "$source/examples/gpt/strategies/ddp.toml" > "$work/host.toml"
  { cat "$work/host.toml"; printf '[select]\naccelerator = "cuda"\n'; } > "$work/card.toml"
  gpt host && gpt card && "$build/bin/gpt-compare" "$work/host.json" "$work/card.json"
}

status=0
bounded 60 "$build/bin/bench_device" "$build/lib/gsel/plugins-1/cuda.so" 4096 > "$work/out" 2>&1 || status=$?
if [ $status = 77 ]; then
  tail -n 1 "$work/out" >&2
  echo "test-gpu: no NVIDIA card here; make test-gpu DOUBLE=1 runs the same over a double of the driver" >&2
  exit 1
fi
[ -n "$double" ] || check selection "$source/tests/gpu/selection.sh" "$build/bin/gsel" "$build/tests/gpu_cuda_masks"
if [ -n "$double" ]; then check device "$build/tests/conformance_device" cuda; else check device "$build/tests/conformance_device" gpu; fi
for test in gpt_kernels gpt_products gpt_ring gpt train train_checkpoints train_graph train_offload train_own train_pipeline train_tensor; do check $test "$build/tests/cuda_$test"; done
export -f gpt trains_as_on_the_host
check example_gpt bash -c 'set -e; trains_as_on_the_host'
for transport in nccl host; do
  check example_allreduce_$transport "$build/bin/gsel" run -n 1 -- "$build/bin/allreduce_cuda" $transport
done
[ $failed = 0 ] || { echo "test-gpu: $failed of $((ran + failed)) failed" >&2; exit 1; }
echo "test-gpu: $ran passed"
