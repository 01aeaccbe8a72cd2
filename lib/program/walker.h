// program/walker.h: one rank going through its program on facts instead of data: which value is written, which gradient
// complete, which collective under way. It stops where the executor would block. The rules hold for any program, so it
// refuses to know strategies.
#pragma once

#include <unordered_map>

#include "program/exchange.h"

namespace gsel {

struct ValueFacts {
  bool written = false;
  bool gradient_used = false;
  int32_t expected = 0;  // gradient contributions owed: forward readers and sends
  int32_t arrived = 0;
};

struct LayerFacts {
  bool forward = false, backward_input = false, backward_weight = false;
};

struct ParamFacts {
  int32_t pending = 0;  // forwards whose weight gradient is not produced yet
  bool closed = false;  // reduced or stepped: no further use in this step
};

struct BucketFacts {
  std::array<bool, GSEL_AXES> reduced{};
  bool waited = true;
  bool stepped = false;
  gsel_axis last_axis = -1;  // group and place of its collective under way
  size_t last_index = 0;
};

// One rank going through its program.
class Walker {
 public:
  Walker(const Program& program, Exchange& all)
      : program_(program), all_(all), buckets_(program.buckets.size()), params_(program.params.size()) {}

  const Program& program() const { return program_; }
  bool finished() const { return !in_setup_ && position_ == program_.step.size(); }
  // Goes on until it blocks or ends; true when it moved.
  bool advance();
  std::string where_now() const { return where(program_, in_setup_, position_); }
  const std::string& waits_for() const { return waits_for_; }
  void check_end() const;
  bool ran_forward(int32_t l, int32_t mb) const;

 private:
  const std::vector<gsel_instr>& list() const { return in_setup_ ? program_.setup : program_.step; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", where_now(), why)).about_rank(program_.rank);
  }
  ValueFacts& value(int32_t v, int32_t mb) { return values_[key(v, mb)]; }
  LayerFacts& layer(int32_t l, int32_t mb) { return layers_[key(l, mb)]; }
  static uint64_t key(int32_t id, int32_t mb) { return uint64_t(uint32_t(id)) << 32 | uint32_t(mb); }

  bool execute(const gsel_instr& instr);  // false: blocked
  void input(const gsel_instr& instr);
  void forward(const gsel_instr& instr);
  void backward(const gsel_instr& instr, bool input_half, bool weight_half);
  void need_output_gradients(const ProgramLayer& layer, int32_t mb);
  void send(const gsel_instr& instr);
  bool receive(const gsel_instr& instr);
  void begin_bucket(const gsel_instr& instr);
  bool wait(const gsel_instr& instr);
  bool loss_reduce(const gsel_instr& instr);
  void norm();
  void step(const gsel_instr& instr);

  const Program& program_;
  Exchange& all_;
  bool in_setup_ = true;
  size_t position_ = 0;
  bool posted_here_ = false;  // the collective at position_ is posted and waits
  size_t posted_index_ = 0;
  bool loss_reduced_ = false;
  std::string waits_for_;
  std::unordered_map<uint64_t, ValueFacts> values_;
  std::unordered_map<uint64_t, LayerFacts> layers_;
  std::vector<BucketFacts> buckets_;
  std::vector<ParamFacts> params_;
};

}  // namespace gsel
