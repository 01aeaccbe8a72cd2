// program/verify/checks.h: what is checked of a job beside the walk through its instructions (walker.h): outlines, the
// placements on the sharing axis, optimistic steps. GSEL_ERR_PROGRAM says what is wrong.
#pragma once

#include <span>
#include <vector>

#include "program/job.h"

namespace gsel {

// ---- outlines: outline.cc
// --------------------------------------------------------------------------------------------

// One bucket, which can be kept as described; one micro-batch. holders: all_holders of the program.
void check_bucket(const Program& program, int32_t bucket, const std::vector<std::vector<int32_t>>& holders);
void check_microbatch(const Program& program, int32_t microbatch);

// The outlines of a job: one model and mesh, good buckets, each parameter in one bucket, as many micro-batches
// along the data axis, the same ones along the others, parts that make up their wholes.
void check_outlines(const Job& job);

// ---- placements of parameters and values: placements.cc
// --------------------------------------------------------------

// What a layer that redistributes has: one value with one placement, and the same with another.
void check_redistribution(const Program& program, const ProgramLayer& layer);

// The outlines of the ranks that share layers, in order of their coordinates on the sharing axis: the layers that read
// and write parameters and values make every sum exactly once.
void check_sharing_outlines(std::span<const Program* const> programs);

// ---- optimistic steps (program/optimistic.h): post_validation.cc
// -----------------------------------------------------

// The rules of docs/program.md about them, of programs that follow all others. A step that is begun again repeats what
// stands before POST_VALIDATE. No message may cross validation: stand before it on one rank and after it on the other.
// The same holds for the calls of a group.
void check_post_validations(const Job& job);

}  // namespace gsel
