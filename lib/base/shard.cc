// base/shard.cc: see shard.h.
#include "base/shard.h"

#include <algorithm>
#include <numeric>

#include "base/config.h"

namespace gsel {

namespace {

bool all_alike(std::span<const double> weights) {
  return std::ranges::all_of(weights, [&](double w) { return w == weights.front(); });
}

std::vector<int64_t> even_bounds(int64_t n, size_t parts) {
  std::vector<int64_t> bounds{0};
  for (size_t i = 0; i < parts; ++i)
    bounds.push_back(shard_range(n, static_cast<int64_t>(parts), static_cast<int64_t>(i)).end);
  return bounds;
}

// Each rank gets at least `least` items. Ranks with a larger proportional size get its whole part, then one item each
// by largest remainder.
std::vector<int64_t> deal(int64_t n, std::span<const double> weights, int64_t least) {
  if (all_alike(weights)) return even_bounds(n, weights.size());  // exact for any n
  std::vector<int64_t> size(weights.size(), least);
  std::vector<bool> has_least(weights.size(), false);
  std::vector<double> exact(weights.size());
  for (bool found = true; found;) {
    found = false;
    double sum = 0;
    int64_t rest = n;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (has_least[i])
        rest -= least;
      else
        sum += weights[i];
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      exact[i] = has_least[i] ? 0 : static_cast<double>(rest) * weights[i] / sum;
      if (has_least[i] || exact[i] >= static_cast<double>(least)) continue;
      found = has_least[i] = true;
    }
  }
  int64_t left = n;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!has_least[i]) size[i] = static_cast<int64_t>(exact[i]);
    exact[i] -= static_cast<double>(size[i]);
    left -= size[i];
  }
  for (; left > 0; --left) {
    const auto most = std::ranges::max_element(exact);
    ++size[most - exact.begin()];
    *most -= 1;
  }
  std::vector<int64_t> bounds(weights.size() + 1, 0);
  std::partial_sum(size.begin(), size.end(), bounds.begin() + 1);
  return bounds;
}

}  // namespace

std::vector<int64_t> shard_bounds(int64_t n, std::span<const double> weights) {
  return deal(n, weights, 1);
}
std::vector<int64_t> shard_items(int64_t n, std::span<const double> weights) {
  return deal(n, weights, 0);
}

ShardRows rows_of(std::span<const int64_t> dims, const Shard& shard) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < dims.size(); ++i) (i < static_cast<size_t>(std::max(shard.dim, 0)) ? outer : inner) *= dims[i];
  if (shard.is_whole()) return {1, inner, 0, inner};
  inner /= dims[shard.dim];
  return {outer * shard.blocks, shard.size() * inner, shard.begin * inner, shard.whole * inner};
}

std::vector<int64_t> local_dims(std::vector<int64_t> dims, const Shard& shard) {
  if (!shard.is_whole()) dims[shard.dim] = shard.size() * shard.blocks;
  return dims;
}

}  // namespace gsel
