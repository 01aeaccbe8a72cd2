/* tests/support/counts.h: counts by value, for callers that know that the object exists. */
#ifndef GSEL_TESTS_COUNTS_H
#define GSEL_TESTS_COUNTS_H

#include <gsel/comm.h>
#include <gsel/program.h>
#include <gsel/train.h>

GSEL_EXTERN_C_BEGIN

gsel_comm_count comm_counts(const gsel_comm* comm, gsel_collective_kind kind);
gsel_comm_count trainer_counts(const gsel_trainer* trainer, gsel_instr_kind kind, gsel_axis axis);
gsel_comm_count program_traffic(const gsel_program* program, int64_t step, gsel_instr_kind kind, gsel_axis axis);

GSEL_EXTERN_C_END

#endif
