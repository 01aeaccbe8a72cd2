// train/storage.h: where tensors live. Parameters, gradients and optimizer state stand side by side per bucket, so
// that a collective or an optimizer step works on one stretch of memory and no gradient is ever copied. Values live in
// one arena at offsets planned from the program: memory is shared by what is never alive together.
#pragma once

#include <memory>
#include <vector>

#include "comm/backend.h"
#include "model/model.h"
#include "program/program.h"

namespace gsel {

// Elements of a bucket that are treated alike by the optimizer.
struct Segment {
  int64_t first = 0, count = 0;
  uint32_t flags = 0;  // GSEL_PARAM_NO_DECAY, GSEL_PARAM_NO_CLIP
};

class ParamStorage {
 public:
  // n_states: optimizer arrays per parameter, zeroed.
  ParamStorage(std::shared_ptr<Backend> backend, const Model& model, const Program& program, int n_states);

  // Writes the initial values, keyed by (seed, name, element).
  void initialise(const Model& model, uint64_t seed);

  float* param(int32_t p) const { return at(&Block::params, p); }
  float* gradient(int32_t p) const { return at(&Block::gradients, p); }  // nullptr when frozen

  struct Block {
    Memory params, gradients, states[2];
    int64_t elems = 0;
    std::vector<Segment> segments;
  };
  const Block& block(int32_t bucket) const { return blocks_[bucket]; }

 private:
  float* at(Memory Block::*memory, int32_t p) const;
  Block make_block(const Model& model, const std::vector<int32_t>& params, bool trained, int n_states);

  std::shared_ptr<Backend> backend_;
  struct Home {
    int32_t block = 0;
    int64_t first = 0;
  };
  std::vector<Home> homes_;    // by parameter
  std::vector<Block> blocks_;  // by bucket; then one of frozen parameters
};

// Offsets of values, their gradients, saved bytes and scratch in one arena.
class ValuePlan {
 public:
  ValuePlan(const Model& model, const Program& program);

  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t bytes() const { return bytes_; }
  uint64_t value(int32_t v, int32_t mb) const { return values_[index(v, mb)]; }
  uint64_t gradient(int32_t v, int32_t mb) const { return gradients_[index(v, mb)]; }
  uint64_t scratch(int32_t v, int32_t mb) const { return scratch_[index(v, mb)]; }  // for a second contribution
  uint64_t saved(int32_t layer, int32_t mb) const { return saved_[static_cast<size_t>(mb) * n_layers_ + layer]; }

 private:
  friend class Planner;
  size_t index(int32_t v, int32_t mb) const { return static_cast<size_t>(mb) * n_values_ + v; }

  size_t n_values_, n_layers_;
  std::vector<uint64_t> values_, gradients_, scratch_, saved_;
  uint64_t bytes_ = 0;
};

// Elements and bytes of a value for n samples; GSEL_ERR_NOMEM when no memory could be that large.
int64_t value_elems(const Value& value, int64_t n_samples);
uint64_t value_bytes(const Value& value, int64_t n_samples);
// Bytes a layer keeps from forward to backward.
uint64_t saved_bytes(const Layer& layer, int64_t n_samples);
// A view of n samples of a value at `data`.
gsel_tensor value_tensor(const Value& value, int64_t n_samples, void* data);
gsel_tensor param_tensor(const Param& param, float* data);

}  // namespace gsel
