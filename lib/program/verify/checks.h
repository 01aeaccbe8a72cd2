// program/verify/checks.h: checks of a job besides walking through its instructions (walker.h): outlines, placements on
// the sharing axis, optimistic steps. GSEL_ERR_PROGRAM says what is wrong.
#pragma once

#include <span>
#include <vector>

#include "program/job.h"

namespace gsel {

// ---- outlines: outline.cc ------------------------------------------------------------------------------------------

// Checks one bucket; one micro-batch. holders: all_holders of the program.
void check_bucket(const Program& program, int32_t bucket, const std::vector<std::vector<int32_t>>& holders);
void check_microbatch(const Program& program, int32_t microbatch);

// Checks the outlines of a job: one model and mesh; valid buckets, each parameter in one; equally many micro-batches
// along the data axis, equal ones along other axes; shards that add up to whole micro-batches.
void check_outlines(const Job& job);

// ---- placements of parameters and values: placements.cc ------------------------------------------------------------

// Checks a redistribution: its output is its input with another placement.
void check_redistribution(const Program& program, const ProgramLayer& layer);

// Checks the outlines of the ranks of one sharing axis, by coordinate: every sum over the axis is made exactly once.
void check_sharing_outlines(std::span<const Program* const> programs);

// ---- optimistic steps (program/optimistic.h): post_validation.cc ---------------------------------------------------

// Checks the rules of docs/program.md on optimistic steps, for programs that pass all other checks. A step that starts
// over repeats the instructions before POST_VALIDATE. No message and no call of a group may cross validation: come
// before it on one rank and after it on another.
void check_post_validations(const Job& job);

}  // namespace gsel
