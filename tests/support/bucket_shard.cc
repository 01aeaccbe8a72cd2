// support/bucket_shard.cc: see bucket_shard.h.
#include "support/bucket_shard.h"

#include <algorithm>

namespace gsel_test {

Bucket::Bucket(const std::vector<ParamOf>& all, uint64_t seed) {
  size_t count = 0;
  for (const ParamOf& p : all) {
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    options.name = gsel_str_from(p.name);
    options.dims = p.dims.data();
    options.n_dims = static_cast<int32_t>(p.dims.size());
    options.flags = p.flags;
    options.lr_factor = p.lr_factor;
    params.push_back(model.add_param(options));
    count += static_cast<size_t>(model.params().back().n_elems);
  }
  values.resize(count);
  gradient.resize(count);
  for (float& x : values) x = random_float(seed);
  for (float& x : gradient) x = random_float(seed);
}

Owner::Owner(const Bucket& bucket, const gsel::Optimizer& optimizer, int64_t from, int64_t end, gsel_dtype dtype)
    : begin(from), values(end - from, 99.0f), gradient(end - from, 99.0f), rounded(end - from, 0x5555) {
  int64_t first = 0;
  for (const int32_t p : bucket.params) {
    const int64_t low = std::max(first, from), high = std::min(first + bucket.elems(p), end);
    if (low < high) runs.push_back({p, low - from, high - low, low - first});
    first += bucket.elems(p);
  }
  const int64_t there = std::min(end, bucket.count());
  if (from < there) std::copy(bucket.values.begin() + from, bucket.values.begin() + there, values.begin());
  take_gradient(bucket);
  shard.count = end - from;
  shard.values = values.data();
  shard.gradient = gradient.data();
  if (dtype != GSEL_F32) shard.rounded = rounded.data(), shard.rounded_dtype = dtype;
  for (int i = 0; i < optimizer.n_states(); ++i) {
    const uint64_t bytes = optimizer.state_bytes(i, end - from, static_cast<int64_t>(runs.size()));
    assert_int_equal(bytes % sizeof(float), 0);
    states.emplace_back(bytes / sizeof(float) + 1);
    states.back().back() = 99;  // after the end
    shard.states[i] = states.back().data();
  }
  shard.runs = runs;
}

void Owner::take_gradient(const Bucket& bucket) {
  const int64_t there = std::min(begin + static_cast<int64_t>(values.size()), bucket.count());
  if (begin < there) std::copy(bucket.gradient.begin() + begin, bucket.gradient.begin() + there, gradient.begin());
}

void Owner::check_rest() const {
  const int64_t used = runs.empty() ? 0 : runs.back().first + runs.back().count;
  for (auto i = static_cast<size_t>(used); i < values.size(); ++i) assert_true(values[i] == 99 && rounded[i] == 0x5555);
  for (const auto& state : states) assert_true(state.back() == 99);
}

std::vector<std::unique_ptr<Owner>> owners(const Bucket& bucket, const gsel::Optimizer& optimizer, int n,
                                           gsel_dtype dtype) {
  std::vector<std::unique_ptr<Owner>> result;
  const int64_t size = (bucket.count() + n - 1) / n;
  for (int i = 0; i < n; ++i)
    result.push_back(std::make_unique<Owner>(bucket, optimizer, i * size, (i + 1) * size, dtype));
  return result;
}

std::vector<float> values_of(const Bucket& bucket, const std::vector<std::unique_ptr<Owner>>& all) {
  std::vector<float> values;
  for (const auto& owner : all) values.insert(values.end(), owner->values.begin(), owner->values.end());
  values.resize(bucket.values.size());
  return values;
}

}  // namespace gsel_test
