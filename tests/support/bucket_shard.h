// support/bucket_shard.h: parameters of a bucket and what one rank owns of it, without a trainer around them.
#pragma once

#include <memory>
#include <string>

#include "support/vectors.h"
#include "train/optimize/optimizer.h"

namespace gsel_test {

struct ParamOf {
  const char* name;
  std::vector<int64_t> dims;
  uint32_t flags = 0;
  double lr_factor = 1;
};

// A model of parameters alone, and their values and gradients side by side.
struct Bucket {
  gsel::Model model;
  std::vector<int32_t> params;
  std::vector<float> values, gradient;

  explicit Bucket(const std::vector<ParamOf>& all, uint64_t seed = 1);

  int64_t count() const { return static_cast<int64_t>(values.size()); }
  int64_t elems(int32_t p) const { return model.params()[p].n_elems; }
};

// The owner of elements [begin, end) of a bucket; elements after the bucket's end are padding.
struct Owner {
  int64_t begin;
  std::vector<float> values, gradient;
  std::vector<uint16_t> rounded;
  std::vector<std::vector<float>> states;  // of float for their alignment
  std::vector<gsel::ParamRun> runs;
  gsel::BucketShard shard;

  Owner(const Bucket& bucket, const gsel::Optimizer& optimizer, int64_t from, int64_t end, gsel_dtype dtype = GSEL_F32);
  Owner(const Owner&) = delete;
  void take_gradient(const Bucket& bucket);
  // Checks that only runs and states were written.
  void check_rest() const;
};

// Equal shards with padding, as shards of a bucket are.
std::vector<std::unique_ptr<Owner>> owners(const Bucket& bucket, const gsel::Optimizer& optimizer, int n,
                                           gsel_dtype dtype = GSEL_F32);

// Their values side by side, without padding.
std::vector<float> values_of(const Bucket& bucket, const std::vector<std::unique_ptr<Owner>>& all);

inline void no_sum(std::span<double>) {}

// The text of the error that `call` throws; its code must be this one.
template <class Call>
std::string failure(gsel_status code, Call&& call) {
  try {
    call();
  } catch (const gsel::Error& e) {
    if (e.code() != code)
      fail_msg("expected %s, got %s: %s", gsel_status_name(code), gsel_status_name(e.code()), e.what());
    return e.message();
  }
  fail_msg("expected %s, and nothing was thrown", gsel_status_name(code));
  return {};
}

}  // namespace gsel_test
