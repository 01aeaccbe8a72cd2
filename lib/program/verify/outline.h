// program/verify/outline.h: checks the outline of a program before its instructions: that buckets can be kept as
// described, and that micro-batches agree between ranks.
#pragma once

#include <span>
#include <vector>

#include "program/job.h"

namespace gsel {

// One bucket, one micro-batch; GSEL_ERR_PROGRAM says what is wrong with it. holders: all_holders of the program.
void check_bucket(const Program& program, int32_t bucket, const std::vector<std::vector<int32_t>>& holders);
void check_microbatch(const Program& program, int32_t microbatch);

// The outlines of a job: one model and mesh, good buckets, each parameter in one of them, as many
// micro-batches along the data axis, the same ones along the others, parts that make up their wholes.
void check_outlines(const Job& job);

}  // namespace gsel
