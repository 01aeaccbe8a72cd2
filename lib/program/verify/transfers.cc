// program/verify/transfers.cc: see transfers.h. Follows the programs as the verifier does, but a SEND blocks while as
// many messages as allowed are under way.
#include "program/verify/transfers.h"

#include <algorithm>
#include <vector>

#include "program/verify/outline.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

// Of one program to one rank at most.
int64_t most_messages(std::span<const Program* const> programs) {
  int64_t most = 0;
  for (const Program* p : programs) {
    std::map<int32_t, int64_t> counts;
    for (const gsel_instr& instr : p->step)
      if (instr.kind == GSEL_INSTR_SEND) most = std::max(most, ++counts[instr.peer]);
  }
  return most;
}

}  // namespace

int32_t enough_transfers(const Job& job) {
  check_outlines(job);
  const int64_t most = most_messages(job.programs);
  if (most == 0) return kLeastTransfers;
  for (int32_t transfers = kLeastTransfers;; transfers *= 2) {
    Exchange exchange(job);
    std::deque<Walker> walkers;
    for (const Program* p : job.programs) walkers.emplace_back(*p, exchange, Purpose::training, transfers);
    follow(walkers);
    if (all_finished(walkers)) return transfers;
    if (transfers >= most) check_finished(walkers);
  }
}

}  // namespace gsel
