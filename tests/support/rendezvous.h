// support/rendezvous.h: messages of programs as they are posted and leave, one by one, without any rule of what they
// mean: whether all ranks come to their loss with so many of them under way.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "program/program.h"

namespace gsel::test {

class Rendezvous {
 public:
  Rendezvous(const std::vector<Program>& programs, int32_t transfers) : transfers_(transfers) {
    for (const Program& p : programs) {
      std::vector<gsel_instr> messages;
      for (const gsel_instr& i : p.step)
        if (i.kind == GSEL_INSTR_SEND || i.kind == GSEL_INSTR_RECV) messages.push_back(i);
      lists_.push_back(std::move(messages));
    }
    at_.resize(lists_.size());
  }

  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int32_t r = 0; r < static_cast<int32_t>(lists_.size()); ++r)
        while (at_[r] < lists_[r].size() && pass(r, lists_[r][at_[r]])) {
          ++at_[r];
          moved = true;
        }
    }
    for (size_t r = 0; r < lists_.size(); ++r)
      if (at_[r] < lists_[r].size()) return false;
    for (const auto& [pair, n] : sent_)
      if (!has_left(pair, n - 1)) return false;
    return true;
  }

 private:
  using Pair = std::pair<int32_t, int32_t>;

  bool is_posted(const Pair& pair, int64_t k) { return k - transfers_ < taken_[pair]; }
  bool has_left(const Pair& pair, int64_t k) { return k < 0 || (k < sent_[pair] && is_posted(pair, k)); }

  bool pass(int32_t rank, const gsel_instr& i) {
    if (i.kind == GSEL_INSTR_SEND) {
      const Pair pair{rank, i.peer};
      if (!has_left(pair, sent_[pair] - transfers_)) return false;
      ++sent_[pair];
    } else {
      const Pair pair{i.peer, rank};
      if (!has_left(pair, taken_[pair])) return false;
      ++taken_[pair];
    }
    return true;
  }

  const int64_t transfers_;
  std::vector<std::vector<gsel_instr>> lists_;
  std::vector<size_t> at_;
  std::map<Pair, int64_t> sent_, taken_;
};

// Collectives that stand between messages are left out.
inline bool rendezvous_ends(const std::vector<Program>& programs, int32_t transfers) {
  return Rendezvous(programs, transfers).ends();
}

}  // namespace gsel::test
