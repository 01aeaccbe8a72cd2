#!/bin/sh
# Fits the constants of the planner's time model to published measurements, class by class, and prints errors of rows that
# were fitted and of rows that were left out:
#     bench/plan/run.sh BUILD            errors of the constants in lib/plan/constants.cc, and layouts priced in a second
#     bench/plan/run.sh BUILD --all      a fit to every row: what belongs into lib/plan/constants.cc
#     bench/plan/run.sh BUILD --leave 0  a fit without every fourth row, from row 0, 1, 2 or 3 on
set -eu
build=$1
shift
fit="$build/bin/bench_plan_fit"
data=$(dirname "$0")/../../tests/data/plan
rows="$data/rows.tsv"
if [ $# -eq 0 ]; then
  "$fit" "$rows"
  "$fit" "$data/vtrain_single_node.tsv"
  exec "$fit" --speed
fi
# Times of months of training, which include restarts, and of clusters that others contradict, weigh less.
"$fit" --class a100 --weight "vTrain data/ground_truth_single=0.15,Smith=0.2,Llama 2=0.1,BLOOM=0.5" "$@" \
  --free products,product_traffic,flash,score_passes,element_passes,logit_passes,optimizer_passes,host_layer_s,host_tensor_s,host_rank_s,host_backward,inside,network,message,call_s,inside_hops,network_hops,ring_hops,gather_exposed,by_parameter_calls,by_parameter_network \
  "$rows" "$data/vtrain_single_node.tsv"
"$fit" --class h100 --weight "Llama 3=0.4" "$@" \
  --free products,flash,element_passes,logit_passes,eight_bit,inside,gather_exposed,tensor_hidden,compiled_elements,overlapped_flash,ring_hops "$rows"
"$fit" --class b200 --weight "functional=0.1" "$@" --free products,flash,element_passes "$rows"
"$fit" --class gb300 "$@" --free products,flash "$rows"
"$fit" --class t4 "$@" --free products,element_passes,logit_passes,network,inside "$rows"
"$fit" --class v100 "$@" --free products,element_passes "$rows"
"$fit" --class titan-rtx "$@" --free products,inside "$rows"
