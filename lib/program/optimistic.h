// program/optimistic.h: optimistic steps, taken before the number of all ranks (norm, overflow) is known. An optimistic
// NORM or OVERFLOW starts an all-reduce and goes on; POST_VALIDATE in the next step takes the result. If the step was
// wrong, every rank begins the next step again. This file finds what stands where; the rules are in
// verify/checks.h. Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, "post-validation"; in the
// paper the number goes along the pipeline in messages.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace gsel {

bool is_optimistic(const gsel_instr& instr);
// Whether the program steps before it knows whether it may.
bool has_optimistic_steps(const Program& program);
// Position of the step's POST_VALIDATE, or -1; of its last optimistic instruction, or -1.
int32_t post_validate_position(const Program& program);
int32_t last_optimistic(const Program& program);

// Which messages cross validation: they stand before POST_VALIDATE on one rank and after it on the other. Messages of
// an ordered pair are in the same order at both ends, so counting them tells which ones cross.
struct PostValidations {
  std::vector<const Program*> programs;  // of a job, in ascending ranks
  std::vector<int32_t> ends;             // where POST_VALIDATE stands in each; -1: nowhere

  size_t index_of(int32_t rank) const;
  bool has(int32_t rank) const;
  // Positions of the crossing messages of a program, those of one peer and kind together. SEND or RECV.
  std::vector<int32_t> crossing(size_t program, gsel_instr_kind kind) const;
};

}  // namespace gsel
