// train/compile/base_program.h: the program that passes start from. Each rank computes the whole model, for its
// coordinate on the data axis, one micro-batch after the other; then follow the sum of the loss and the optimizer's
// steps. Does not know plugins.
#pragma once

#include "base/config.h"
#include "model/model.h"
#include "program/program.h"

namespace gsel {

// Where the samples of each coordinate on the data axis begin, and the end of the last: in proportion to the weights.
std::vector<int64_t> sample_bounds(const Config& config, int32_t ranks);
// Samples of the coordinate that has most; 1 or more.
int64_t largest_share(const Config& config, int32_t ranks);

// The samples of a rank's coordinate on the data axis, cut in micro-batches: as many as the coordinate with the largest
// share has, the last ones perhaps without samples, because all ranks join every collective.
std::vector<Microbatch> microbatches_of(const Config& config, const Mesh& mesh, int32_t rank);
// Of every coordinate on the data axis.
std::vector<std::vector<Microbatch>> microbatches_of_replicas(const Config& config, const Mesh& mesh);

Program base_program(const Model& model, const Config& config, const Mesh& mesh, int32_t rank);

// Buckets anew, one per dtype and tie of the parameters that are here, and a STEP for each at the end of the step in
// place of those there were.
void make_buckets(Program& program);

}  // namespace gsel
