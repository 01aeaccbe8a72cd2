// support/arena_check.h: goes through a program with its arena plan as an executor would, painting memory instead of
// computing: every buffer an instruction reads must hold what was last written to it, whatever else was written
// between.
#ifndef GSEL_TESTS_ARENA_CHECK_H
#define GSEL_TESTS_ARENA_CHECK_H

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "train/state/arena_plan.h"

namespace made {

// Fails the test if the plan is wrong. Returns the most bytes that are in use at one instruction.
uint64_t check_arena(const gsel::Model& model, const gsel::Program& program,
                     const std::vector<gsel::BucketLayout>& layouts, const gsel::ArenaPlan& plan);

}  // namespace made

#endif
