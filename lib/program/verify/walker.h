// program/verify/walker.h: follows the program of one rank with facts instead of data: which value is written, which
// gradient is complete, which parameters can be read, which collective is under way. It stops where the executor would
// block. The rules hold for any program and know no strategies.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <unordered_map>

#include "program/verify/exchange.h"
#include "program/verify/facts.h"
#include "program/verify/verify.h"

namespace gsel {

class Walker {
 public:
  // transfers: the most messages under way to a rank before a SEND blocks; 0: unlimited.
  Walker(const Program& program, Exchange& all, Purpose purpose, int32_t transfers = 0);

  const Program& program() const { return program_; }
  bool finished() const { return !in_setup_ && position_ == program_.step.size(); }
  // Advances until it blocks or ends; true if it moved.
  bool advance();
  std::string where_now() const { return spot().where(); }
  // Only if blocked.
  std::string waits_for() const;
  void check_end() const;

  template <class Visit>
  void each_forward(Visit&& visit) const {  // visit(layer, microbatch)
    for (const auto& [id, facts] : layers_)
      if (facts.forward) visit(static_cast<int32_t>(id >> 32), static_cast<int32_t>(uint32_t(id)));
  }

 private:
  const std::vector<gsel_instr>& list() const { return in_setup_ ? program_.setup : program_.step; }
  Spot spot() const { return {&program_, in_setup_, position_}; }
  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void refuse_end(const std::string& why) const;
  ValueFacts& value(int32_t v, int32_t mb) { return values_[key(v, mb)]; }
  LayerFacts& layer(int32_t l, int32_t mb) { return layers_[key(l, mb)]; }
  static uint64_t key(int32_t id, int32_t mb) { return uint64_t(uint32_t(id)) << 32 | uint32_t(mb); }
  const std::string& name(int32_t v) const { return program_.values[v].name; }
  int32_t coordinate(gsel_axis axis) const { return program_.mesh.coordinate(program_.rank, axis); }

  // An instruction is entered, blocks until its group has met for all its calls, and is left.
  void enter(const gsel_instr& instr);
  bool meet(const gsel_instr& instr);
  int32_t awaited(const gsel_instr& instr, const RankGroup& group) const;
  void leave(const gsel_instr& instr);
  RankGroup* meeting(const gsel_instr& instr, int32_t i) const;  // the i-th, or nullptr
  bool has_room(const gsel_instr& instr) const;                  // whether it can be entered
  int32_t full_channel() const;                                  // a rank that has not taken enough messages, or -1
  void check_purpose(const gsel_instr& instr) const;
  void begin_step();

  // walker_values.cc
  void input(const gsel_instr& instr);
  void forward(const gsel_instr& instr);
  void recompute(const gsel_instr& instr);
  void backward(const gsel_instr& instr);
  void need_output_gradients(const ProgramLayer& layer, int32_t mb);
  void produce_weights(const gsel_instr& instr);
  // walker_messages.cc
  void send(const gsel_instr& instr);
  bool receive(const gsel_instr& instr);
  void enter_parts(const gsel_instr& instr);
  void leave_parts(const gsel_instr& instr);
  bool comes_back(const gsel_instr& instr);
  void give(ValueFacts& v, bool gradient, bool owes);
  void take(ValueFacts& v, bool gradient);
  // walker_buckets.cc
  void need_here(const gsel_instr& instr) const;
  void need_params(const ProgramLayer& layer, uint64_t unread) const;
  void begin_bucket(const gsel_instr& instr);
  void check_broadcast(const gsel_instr& instr) const;
  void check_gather(const gsel_instr& instr) const;
  void begin_reduction(const gsel_instr& instr);
  bool wait(const gsel_instr& instr);
  void release(const gsel_instr& instr);
  // walker_step.cc
  void need_all_contributions(int32_t bucket) const;
  std::string lacks(int32_t bucket) const;  // what the bucket's gradients lack; empty: nothing
  std::string lacks_on_data_axis(int32_t bucket) const;
  std::string lacks_on_sharing_axis(int32_t bucket) const;
  // An axis of several ranks that still needs a reduction, or -1.
  gsel_axis missing_reduction(const std::array<bool, kAxes>& done, bool over_tensor) const;
  gsel_axis missing_loss_axis() const;
  gsel_axis missing_overflow_axis() const;  // -1 if no instruction checks for overflow
  void need_loss_reduced() const;
  void loss_allreduce(const gsel_instr& instr);
  void look_at_gradients(const char* what);
  void need_reducible(const gsel_instr& instr) const;
  void allreduce_partial(const gsel_instr& instr);
  void allreduce_tied(const gsel_instr& instr);
  void norm();
  void overflow(const gsel_instr& instr);
  void step(const gsel_instr& instr);
  void check_bucket_end(int32_t bucket) const;
  void post_validate();
  bool goes_on(const gsel_instr& instr, const RankGroup& group) const;

  const Program& program_;
  Exchange& all_;
  const Purpose purpose_;
  const int32_t transfers_;
  const bool partial_loss_;
  std::vector<RankGroup*> groups_;       // by axis
  std::vector<RankGroup*> tied_groups_;  // by bucket; nullptr: not tied
  std::vector<int32_t> bucket_of_;       // by parameter; -1: frozen
  std::vector<bool> contributed_;        // by bucket: a layer of this rank contributes to its gradients

  bool in_setup_ = true;
  size_t position_ = 0;
  // Of the current instruction.
  bool entered_ = false, posted_ = false;
  int32_t met_ = 0;
  size_t meeting_index_ = 0;

  std::map<int32_t, Channel*> sent_to_;            // by rank
  std::unordered_map<uint64_t, bool> comes_back_;  // by value and receiver
  std::array<bool, kAxes> loss_reduced_{}, overflow_checked_{};
  bool normed_ = false, any_stepped_ = false, validated_ = false;
  std::unordered_map<uint64_t, ValueFacts> values_;
  std::unordered_map<uint64_t, LayerFacts> layers_;
  std::vector<BucketFacts> buckets_;
  std::vector<int32_t> pending_;  // by parameter: forwards whose weight gradient is still due
};

// Advances all walkers until none moves.
void follow(std::deque<Walker>& walkers);
bool all_finished(const std::deque<Walker>& walkers);
// Throws if a walker is blocked forever.
void check_finished(const std::deque<Walker>& walkers);

}  // namespace gsel
