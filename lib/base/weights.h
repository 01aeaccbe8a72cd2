// base/weights.h: the shares of the ranks of an axis, by weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/config.h"

namespace gsel {

// Weights of an axis's ranks, [strategy.AXIS] weights, all 1 where the file has none; GSEL_ERR_CONFIG unless there is
// one for each rank.
std::vector<double> axis_weights(const Config& config, gsel_axis axis, int32_t ranks);

// As shard_bounds of base/shard.h, of n items of which a rank may have none.
std::vector<int64_t> share_items(int64_t n, std::span<const double> weights);

}  // namespace gsel
