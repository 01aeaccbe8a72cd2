/* See counts.h. */
#include "support/counts.h"

gsel_comm_count comm_counts(const gsel_comm* comm, gsel_collective_kind kind) {
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  (void)gsel_comm_counts(comm, kind, &count, NULL);
  return count;
}

gsel_comm_count trainer_counts(const gsel_trainer* trainer, gsel_instr_kind kind, gsel_axis axis) {
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  (void)gsel_trainer_counts(trainer, kind, axis, &count, NULL);
  return count;
}

gsel_comm_count program_traffic(const gsel_program* program, int64_t step, gsel_instr_kind kind, gsel_axis axis) {
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  (void)gsel_program_traffic(program, step, kind, axis, &count, NULL);
  return count;
}
