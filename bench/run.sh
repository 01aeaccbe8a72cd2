#!/bin/sh
# run.sh BIN TEXT: every bench, one after the other; what `make bench` shows.
set -eu
here=$(dirname "$0")
echo "choosing devices: gsel bench_select"
"$1/bench_select"
echo
echo "allreduce on one host: gsel bench_allreduce, 2 ranks"
"$1/gsel" run -n 2 -- "$1/bench_allreduce"
echo
echo "data-parallel training: tokens per second"
"$here/ddp_scaling.sh" "$1" "$2"
echo
echo "around the calls: gsel bench_lifecycle"
"$1/bench_lifecycle"
echo "a death among ranks on several hosts: gsel bench_shrink"
"$1/bench_shrink"
echo
echo "requests beside blocking calls: gsel bench_requests"
"$1/bench_requests"
echo
echo "optimizer steps beside the memory: gsel bench_optimizer"
"$1/bench_optimizer"
echo
echo "schedules of pipelines: gsel bench_schedule"
"$1/bench_schedule"
echo
echo "pipelines beside their simulation: gsel bench_pipeline, one round"
"$1/bench_pipeline" 1
