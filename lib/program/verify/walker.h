// program/verify/walker.h: follows the program of one rank with facts instead of data: which value is written, which
// gradient is complete, which parameters can be read, which collective is under way. It stops where the executor would
// block. The rules hold for any program and know no strategies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/job.h"
#include "program/program.h"
#include "program/verify/verify.h"
#include "program/words/words.h"

namespace gsel {

// ---- the state between ranks: messages under way, and the calls of each group in order -----------------------------

// The position of an instruction; becomes text only in an error.
struct Spot {
  const Program* program = nullptr;
  bool in_setup = false;
  size_t position = 0;

  const gsel_instr& instr() const { return (in_setup ? program->setup : program->step)[position]; }
  std::string where() const { return gsel::where(*program, in_setup, position); }
};

// Ranks that differ on one axis only, or pipeline ranks that hold the same tied parameters, and the calls that they
// make together, in order.
class RankGroup {
 public:
  // same_bucket_ids: false between pipeline ranks, and on a sharing axis whose shards differ in size: there buckets are
  // equal if they have the same parameters.
  RankGroup(std::string name, std::vector<int32_t> ranks, bool same_bucket_ids)
      : name_(std::move(name)), ranks_(std::move(ranks)), same_bucket_ids_(same_bucket_ids), posted_(ranks_.size()) {}

  // Adds a rank's next call; returns its position in the order. phase: of the instruction's layer, else 0.
  // GSEL_ERR_PROGRAM when the group has another call at that position.
  size_t post(const Spot& spot, int32_t phase);
  bool complete(size_t index) const { return calls_[index].joined == ranks_.size(); }
  bool has_posted(int32_t position, size_t index) const { return posted_[position] > index; }
  // A rank that has not posted call `index` yet, or -1.
  int32_t missing(size_t index) const;
  // Throws if a rank never joined a call.
  void check_complete() const;

 private:
  struct Call {
    Spot first;
    int32_t phase = 0;
    size_t joined = 0;
  };
  std::string name_;
  std::vector<int32_t> ranks_;
  bool same_bucket_ids_;
  std::vector<size_t> posted_;  // by position in ranks_
  std::vector<Call> calls_;
};

// Messages of an ordered pair of ranks.
struct Channel {
  std::deque<Spot> under_way;
  int64_t sent = 0, taken = 0;
};

class Exchange {
 public:
  explicit Exchange(const Job& job) : job_(job) {}

  // References stay valid. A group has only the ranks whose programs are followed; the other ranks do the same.
  Channel& channel(int32_t from, int32_t to) { return channels_[{from, to}]; }
  RankGroup& group(const Program& program, gsel_axis axis);
  RankGroup& tied_group(const Program& program, int32_t bucket);

  // Throws if a message was sent and not received, or a rank did not join a call.
  void check_ended() const;

 private:
  const Job& job_;
  std::map<std::pair<int32_t, int32_t>, Channel> channels_;    // by sender and receiver
  std::map<std::pair<gsel_axis, int32_t>, RankGroup> groups_;  // by axis and first rank
  std::map<std::vector<int32_t>, RankGroup> tied_groups_;      // by ranks
};

// ---- facts about the data of one rank ------------------------------------------------------------------------------

// A value of a micro-batch.
struct ValueFacts {
  bool written = false;
  bool gradient_used = false;
  int32_t expected = 0;  // gradient contributions owed: forward readers, sends and gathers
  int32_t arrived = 0;
};

// A layer of a micro-batch.
struct LayerFacts {
  bool forward = false, recomputed = false, backward_input = false, backward_weight = false;
};

// Whether a bucket's parameters can be read.
enum class Holding : uint8_t {
  ready,
  absent,    // not gathered or broadcast yet
  arriving,  // until WAIT
  released,
  stale,    // the optimizer changed shards on other ranks
  stepped,  // the optimizer changed them on this rank: reads now belong to the next step
};

struct BucketFacts {
  Holding params = Holding::ready;
  gsel_instr_kind under_way = 0;  // its collective, with axis and call of the group
  gsel_axis axis = -1;
  size_t index = 0;
  int32_t unreduced = 0;             // contributions to its gradients that are not reduced yet
  bool reduced = false;              // over the axis of its shards or owner
  std::array<bool, kAxes> summed{};  // axes over which its whole gradients are summed
  bool partial_summed = false;       // over the sharing axis
  bool tied_summed = false;          // over the pipeline ranks that hold its parameters
  bool closed = false;               // no further contribution is allowed
  bool checked = false;              // by norm or overflow
  bool stepped = false;
};

// ---- one rank ------------------------------------------------------------------------------------------------------

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
  void send(const gsel_instr& instr);
  bool receive(const gsel_instr& instr);
  void enter_scatter_gather(const gsel_instr& instr);
  void leave_scatter_gather(const gsel_instr& instr);
  bool owes_gradient(const gsel_instr& instr);
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
  void need_complete_gradients(const char* what);
  void need_reducible(const gsel_instr& instr) const;
  void allreduce_partial(const gsel_instr& instr);
  void allreduce_tied(const gsel_instr& instr);
  void norm();
  void overflow(const gsel_instr& instr);
  void step(const gsel_instr& instr);
  void check_bucket_end(int32_t bucket) const;
  void post_validate();
  bool is_nonblocking(const gsel_instr& instr, const RankGroup& group) const;

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

  std::map<int32_t, Channel*> sent_to_;               // by rank
  std::unordered_map<uint64_t, bool> owes_gradient_;  // by value and receiver
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
