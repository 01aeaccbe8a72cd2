// train/check/layer_check.h: the checks of one layer's callbacks, each kind in a file of its own:
//   memory_checks.cc  reads and writes of memory: guards, poison, moved buffers, repeated calls
//   sum_checks.cc     sums: accumulation, halves of backward, halves of a batch; and evaluation
//   differences.cc    gradients against finite differences of forward
//   shards_check.cc   shards on the sharing axis against the whole layer
#pragma once

#include <optional>

#include "train/check/member.h"

namespace gsel::check {

struct Settings {
  uint64_t seed = 1;
  uint32_t skip = 0;        // bits 1 << GSEL_BREACH_*
  int32_t differences = 0;  // elements of each gradient; 0: as gsel_model_check_options says
  bool looks_for(gsel_breach_kind kind) const { return !(skip >> kind & 1); }
};

// A model divided over the ranks of the sharing axis.
struct Divided {
  const char* how;            // text for breach messages
  std::vector<Model> models;  // by rank
};

class LayerCheck {
 public:
  // member: has parameters and inputs; the constructor draws gradients of outputs.
  LayerCheck(Caller& caller, const Settings& settings, Member member);

  // Runs first. False: the outputs of forward are not reliable.
  bool check_forward();
  // After check_forward.
  void check_backward();
  void check_shards(const Divided& divided);

  // After check_forward.
  const Member& member() const { return a_; }

 private:
  Findings& findings() { return caller_.findings(); }
  Site site(int32_t callback) const { return Site(*a_.layer, callback); }
  Round round(int32_t callback) const;
  double tolerance() const { return tolerance_; }
  std::vector<int32_t> backward_callbacks() const;
  bool is_sound(int32_t callback) const { return sound_ & 1u << callback; }
  bool backward_is_sound() const;
  // Runs all of the backward that the layer has. Forward must be done.
  void run_backward(std::span<Member> ranks, gsel_axis axis);

  // memory_checks.cc
  bool check_memory(const Round& round, Member& a, Member& b);
  bool check_unread(const Round& round, const Member& state);
  bool is_repeatable(const Round& round, const Member& state, const Member& first);
  bool is_independent(const Round& round, const Member& state, Member& x, const Member& y);
  bool check_element(const Round& round, const Member& before, const Buffer& x, const Buffer& y, int64_t i);
  bool always_adds(const Round& round, Member member, const Buffer& gradient, int64_t i);
  bool keeps_no_pointer(const Round& round, const Member& state, const Member& first);
  bool check_produced(const Round& round, const Member& m);

  // sum_checks.cc
  void check_accumulation(int32_t callback);
  void note_untouched(int32_t callback);
  void check_halves();
  void check_batch();
  void check_evaluation();
  bool draws_noise();

  // How a buffer of the whole layer maps to buffers of the ranks.
  struct Together {
    enum { in_shards, as_sum, alike } how = alike;
    std::vector<Shard> shards;
  };
  void compare(gsel_breach_kind kind, int32_t callback, std::span<Member> ranks, const Buffer& whole,
               const Together& together, const std::string& what);
  void compare_one(gsel_breach_kind kind, int32_t callback, const Buffer& got, const Buffer& whole, double most,
                   const std::string& what);

  // shards_check.cc
  static Together together_of(std::span<const Member> ranks, int32_t role, size_t i);

  // differences.cc
  void check_gradients();
  void check_gradient(const Buffer& gradient, int32_t callback);
  struct Slope {
    double value, tolerance;
  };
  std::optional<Slope> slope(int32_t role, size_t index, int64_t element, double times, bool twice);
  bool agrees(int32_t role, size_t index, int64_t element, double found, double floor, Slope& slope_is);
  std::vector<Buffer> outputs_at(int32_t role, size_t index, int64_t element, double x);
  std::vector<int64_t> drawn_elements(const Buffer& gradient) const;

  Caller& caller_;
  const Settings& settings_;
  const double tolerance_;
  Member a_, b_;                     // after forward, with two poison bytes
  std::optional<Member> gradients_;  // a_ with the gradients of the whole backward
  uint32_t sound_ = 0;               // bit set: the callback uses memory correctly
};

}  // namespace gsel::check
