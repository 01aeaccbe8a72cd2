// model/model.h: the description of a model: parameters, values, layers, and properties derived from them (which layers
// write and read a value, which values need a gradient). Does not know ranks, memory and data.
#pragma once

#include <gsel/model.h>
#include <gsel/program.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/foreign.h"
#include "base/shard.h"

namespace gsel {

struct Param {
  std::string name;
  std::vector<int64_t> dims;
  int64_t n_elems = 1;
  gsel_dtype dtype = GSEL_F32;
  uint32_t flags = 0;
  int32_t init = GSEL_INIT_ZEROS;
  double init_scale = 0;
  gsel_init_fn init_fn = nullptr;
  void* init_user_data = nullptr;
  int32_t shard_kind = GSEL_SHARD_NONE, shard_dim = 0, shard_blocks = 1, shard_granularity = 1;
  double lr_factor = 1;

  // In a rank's divided model (model/divide.h) dims and n_elems are the shard's.
  Shard shard;
  std::vector<int64_t> whole_dims;  // as described
  bool partial_gradient = false;    // whole, and used by layers that have shards of values

  bool trainable() const { return !(flags & GSEL_PARAM_FROZEN); }
};

struct Value {
  std::string name;
  std::vector<int64_t> dims;  // of one sample
  int64_t sample_elems = 1;
  gsel_dtype dtype = GSEL_F32;
  uint32_t flags = 0;
  int32_t declared = GSEL_PLACEMENT_REPLICATE, shard_dim = 0, shard_granularity = 1, shard_blocks = 1, sequence_dim = 0;

  // In a rank's divided model dims and sample_elems are the shard's; shard.dim counts the batch dimension as 0, dims do
  // not include it.
  Placement placement = Placement::replicate;
  Shard shard;
  std::vector<int64_t> whole_dims;  // as described

  int32_t producer = -1;         // layer, or -1 for an input
  std::vector<int32_t> readers;  // layers, in order
  bool needs_gradient = false;   // set by finish: it depends on a trainable parameter and the loss depends on it

  bool is_input() const { return flags & GSEL_VALUE_INPUT; }
  bool is_scalar() const { return flags & GSEL_VALUE_SCALAR; }
};

struct Layer {
  std::string name;
  std::vector<int32_t> inputs, outputs, params;
  uint32_t flags = 0;
  uint64_t saved_bytes_per_sample = 0;
  double flop_per_sample = 0;
  gsel_layer_fn forward = nullptr, backward_input = nullptr, backward_weight = nullptr, backward = nullptr;
  void* user_data = nullptr;
  uint64_t backward_input_unread = 0, backward_weight_unread = 0;  // GSEL_UNREAD_*
  uint64_t backward_unread_params = 0;                             // bit i: params[i]
  // *_buffers: one per described phase. A ring shift becomes several phases on one buffer, or none; *_buffer_of has the
  // buffer of each phase.
  std::vector<gsel_phase> forward_phases, backward_phases;
  std::vector<gsel_phase> forward_buffers, backward_buffers;
  std::vector<int32_t> forward_buffer_of, backward_buffer_of;

  // In a rank's divided model: the layer's id in the description, or -1 for the library's redistributions of a value
  // and its gradient (program/redistribution.h).
  int32_t origin = -1;
  bool redistributes = false;
  bool divided = false;         // a value or parameter is sharded or partial
  bool some_positions = false;  // has a shard of the positions, and does not reduce over the sharing axis

  bool needs_backward_input = false;   // set by finish: an input needs a gradient
  bool needs_backward_weight = false;  // set by finish: a parameter, declared or its own, is trained

  bool is_loss() const { return flags & GSEL_LAYER_LOSS; }
  bool pull_only() const { return !forward && !redistributes; }
  bool backward_in_one() const { return backward || pull_only(); }
  bool needs_backward() const { return needs_backward_input || needs_backward_weight; }
  bool owns_params() const { return flags & GSEL_LAYER_OWN_PARAMS; }
  bool recomputable() const { return flags & GSEL_LAYER_RECOMPUTABLE; }
  bool always_accumulates() const { return flags & GSEL_LAYER_ALWAYS_ACCUMULATES; }

  // GSEL_UNREAD_* bits of a half, or of the whole backward.
  uint64_t unread(gsel_instr_kind kind) const;
  bool reads_input(gsel_instr_kind kind, size_t i) const { return i > 30 || !(unread(kind) & GSEL_UNREAD_INPUT(i)); }
  bool reads_output(gsel_instr_kind kind, size_t i) const { return i > 30 || !(unread(kind) & GSEL_UNREAD_OUTPUT(i)); }
  bool reads_saved(gsel_instr_kind kind) const { return !(unread(kind) & GSEL_UNREAD_SAVED); }
  bool reads_param(gsel_instr_kind kind, size_t i) const;
};

class Model {
 public:
  int32_t add_param(const gsel_param_options& options);
  int32_t add_value(const gsel_value_options& options);
  int32_t add_layer(const gsel_layer_options& options);

  enum class Loss : uint8_t { required, optional };
  // Checks the model and derives which gradients are needed; later adds fail. A model without a loss runs forward only.
  void finish(Loss loss = Loss::required);
  bool finished() const { return finished_; }

  const std::vector<Param>& params() const { return params_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Layer>& layers() const { return layers_; }
  int32_t loss_layer() const { return loss_layer_; }
  int64_t element_count() const;

  // User data of added callbacks; freed with the model.
  std::vector<UserData>& user_data() { return user_data_; }

 private:
  friend class Divider;
  void refuse_if_finished() const;
  void check_layer(const Layer& layer) const;
  void check_loss(const Layer& layer) const;
  void derive_gradients();
  void check_backward_callbacks() const;

  std::vector<Param> params_;
  std::vector<Value> values_;
  std::vector<Layer> layers_;
  std::vector<UserData> user_data_;
  int32_t loss_layer_ = -1;
  bool finished_ = false;
};

}  // namespace gsel
