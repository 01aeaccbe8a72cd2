// program/optimistic.h: optimistic steps, taken before a number of all ranks (norm, overflow) is known. An optimistic
// NORM or OVERFLOW starts an all-reduce and goes on; POST_VALIDATE in the next step takes the result. If the step was
// wrong, every rank repeats it and starts the next step over. This file finds the instructions; the rules are in
// verify/checks.h. Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, "post-validation"; there the
// number is sent along the pipeline in messages.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace gsel {

bool is_optimistic(const gsel_instr& instr);
// Whether the instruction may be optimistic: it makes a number of all gradients known to all pipeline ranks.
bool can_be_optimistic(const gsel_instr& instr);
// Whether the program has optimistic instructions.
bool has_optimistic_steps(const Program& program);
// Position of the step's POST_VALIDATE, and of its last optimistic instruction; -1 for none.
int32_t post_validate_position(const Program& program);
int32_t last_optimistic(const Program& program);

// Finds messages that cross validation: their instruction comes before POST_VALIDATE on one rank and after it on the
// other. Both ends have the messages of a pair in the same order, so counting is enough.
struct PostValidations {
  std::vector<const Program*> programs;  // of a job, in ascending ranks
  std::vector<int32_t> ends;             // position of POST_VALIDATE in each, or -1

  size_t index_of(int32_t rank) const;
  bool has(int32_t rank) const;
  // Positions of a program's crossing messages, grouped by peer: of those that it sends, or else receives.
  std::vector<int32_t> crossing(size_t program, bool sends) const;
};

}  // namespace gsel
