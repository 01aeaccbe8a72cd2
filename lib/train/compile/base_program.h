// train/compile/base_program.h: the program that passes start from. Each rank computes the whole model on the samples
// of its coordinate on the data axis, one micro-batch after the other, then sums the loss and steps the optimizer. Does
// not know plugins.
#pragma once

#include "base/config.h"
#include "model/model.h"
#include "program/program.h"

namespace gsel {

// Sample bounds of the coordinates on the data axis, in proportion to the weights: [ranks + 1].
std::vector<int64_t> sample_bounds(const Config& config, int32_t ranks);
// Samples of the coordinate on the data axis that has most; at least 1.
int64_t largest_local_batch(const Config& config, int32_t ranks);

// The samples of a rank's coordinate on the data axis, cut into micro-batches. All coordinates have equally many, since
// all ranks join every collective; the last micro-batches may have no samples.
std::vector<Microbatch> microbatches_of(const Config& config, const Mesh& mesh, int32_t rank);
// The same for every coordinate on the data axis.
std::vector<std::vector<Microbatch>> microbatches_of_replicas(const Config& config, const Mesh& mesh);

Program base_program(const Model& model, const Config& config, const Mesh& mesh, int32_t rank);

// Replaces the buckets by one per dtype and tie of the parameters that are here, and the STEPs by one per bucket at the
// end of the step.
void make_buckets(Program& program);

}  // namespace gsel
