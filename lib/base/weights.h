// base/weights.h: how work is divided among the ranks of an axis, by weight.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/config.h"

namespace gsel {

// The weights of an axis's ranks, [strategy.AXIS] weights; all 1 when the file has none. GSEL_ERR_CONFIG unless there
// is one weight for each rank.
std::vector<double> axis_weights(const Config& config, gsel_axis axis, int32_t ranks);

// Like shard_bounds in base/shard.h, but a rank may get no items.
std::vector<int64_t> shard_items(int64_t n, std::span<const double> weights);

}  // namespace gsel
