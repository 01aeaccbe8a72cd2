// program/verify/exchange.h: the state between ranks while the verifier follows their programs: messages under way, and
// the calls of each group in order.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/job.h"
#include "program/words/words.h"

namespace gsel {

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

}  // namespace gsel
