#!/bin/sh
# matrix.sh BUILD [PROGRAM...]: what needs no fault, of conformance, of strategies and of the communicator's calls, with its
# ranks on two hosts (started.sh), over each transport: a Markdown table on standard output, and status 0 when all is as it
# should be. A cell says how many tests passed, and which did not. What follows the transports is what cannot be tried so.
set -eu
build=$(realpath "$1")
shift
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export GSEL_TUNING= GSEL_TEST_BIN="$build" GSEL_TEST_DATA="$here/../data"
[ $# -gt 0 ] || set -- unit_comm_calls unit_comm_bool unit_comm_groups unit_comm_messages unit_comm_tags unit_comm_offsets \
  unit_comm_parts unit_comm_requests unit_comm_split unit_comm_crossed unit_operation conformance_strategies \
  conformance_strategies_bytes conformance_strategies_scale conformance_equality conformance_halves conformance_non_finite \
  conformance_always_accumulates conformance_pipeline_run conformance_pipeline_strategies \
  conformance_pipeline_post_validation conformance_tensor_steps conformance_tensor_strategies conformance_tensor_bytes \
  conformance_tensor_pipeline conformance_tensor_overlap
wrong=0
echo "| program | gloo | mpi_openmpi | mpi_mpich |"
echo "|---|---|---|---|"
for program in "$@"; do
  row="| $program |"
  for transport in gloo mpi_openmpi mpi_mpich; do
    status=0
    began=$(date +%s)
    "$here/started.sh" $transport "$build/tests/$program" > "$work/out" 2>&1 || status=$?
    took=$(($(date +%s) - began))
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/out" | head -n 1)
    skipped=$(sed -n 's/^\[  SKIPPED \] \([a-z].*\)/\1/p' "$work/out" | sort -u | grep -vc '^$') || skipped=0
    case $status in
      0) row="$row $passed passed$([ "$skipped" = 0 ] || echo ", $skipped not for hosts") ($took s) |" ;;
      77) row="$row not here |" ;;
      *)
        wrong=$((wrong + 1))
        row="$row **status $status**: $(sed -n 's/.*\[  FAILED  \] \(test_\)\?\([a-z_0-9]*\)$/\2/p' "$work/out" | sort -u | tr '\n' ' ')|"
        sed "s/^/$program, $transport: /" "$work/out" >&2
        ;;
    esac
  done
  echo "$row"
done
[ $wrong = 0 ] || echo "matrix.sh: $wrong cells are not as they should be" >&2
[ $wrong = 0 ]
