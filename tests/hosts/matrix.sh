#!/bin/sh
# matrix.sh BUILD [PROGRAM...]: what needs no fault, of conformance, of strategies and of the communicator's calls, with its
# ranks on two hosts (started.sh), over each transport: a Markdown table on standard output, and status 0 when all is as it
# should be. A cell says how many tests passed (of gpt-matrix: rows that are equal), and which did not. GSEL_TEST_SHARE=n tries
# each n-th row of the long tables.
set -eu
build=$(realpath "$1")
shift
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
export GSEL_TUNING= GSEL_TEST_BIN="$build" GSEL_TEST_DATA="$here/../data"
# Not here: programs without ranks (model_check, pipeline_damage, *_programs), those whose ranks die or join (elastic*,
# checkpoints_killed), and those whose ranks have to be threads of one process, since they meet at a mutex of its or count
# lines of its log (exchange_programs, idle_settings, model_check_faults, tensor_overlap, tensor_questions, trainer_calls).
[ $# -gt 0 ] || set -- unit_comm_calls unit_comm_bool unit_comm_parts unit_comm_crossed unit_comm_queue \
  unit_comm_requests unit_comm_tags unit_operation conformance_strategies conformance_strategies_bytes \
  conformance_strategies_faults conformance_strategies_random conformance_strategies_scale conformance_equality \
  conformance_halves conformance_non_finite conformance_checkpoints conformance_checkpoints_axes conformance_checkpoints_damaged \
  conformance_checkpoints_own conformance_weights conformance_state conformance_always_accumulates conformance_pipeline_run \
  conformance_pipeline_strategies conformance_pipeline_post_validation conformance_pipeline_refusals \
  conformance_tensor_steps conformance_tensor_strategies conformance_tensor_bytes conformance_tensor_pipeline gpt-matrix
wrong=0
cat << TEXT
# Conformance and strategies on two hosts

Two hosts of one machine, which are namespaces with a cable between them, with two ranks each (tests/hosts/started.sh): tests
that passed (of gpt-matrix: combinations of strategies whose exact model ends in the bits of one rank, and whose GPT ends near
its loss), and the seconds that they took. Worlds of two and three ranks are on both hosts too. \`make matrix-hosts\` writes
this; on $(date -u +%F)${GSEL_TEST_SHARE:+, with each ${GSEL_TEST_SHARE}th row of the long tables}.

TEXT
echo "| program | gloo | mpi_openmpi | mpi_mpich |"
echo "|---|---|---|---|"
for program in "$@"; do
  row="| $program |"
  for transport in gloo mpi_openmpi mpi_mpich; do
    status=0
    began=$(date +%s)
    if [ "$program" = gpt-matrix ]; then
      "$here/started.sh" $transport "$build/bin/$program" "$here/../../docs/communicator.md" --launched > "$work/out" 2>&1 || status=$?
      passed=$(grep -c ' equal ' "$work/out") || passed=0
    else
      "$here/started.sh" $transport "$build/tests/$program" > "$work/out" 2>&1 || status=$?
      passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/out" | head -n 1)
    fi
    took=$(($(date +%s) - began))
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
