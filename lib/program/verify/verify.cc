// program/verify/verify.cc: follows the programs of a job together. It is a deadlock when no rank can go on and some
// have not ended.
#include "program/verify/verify.h"

#include <algorithm>
#include <deque>
#include <map>

#include "program/verify/checks.h"
#include "program/verify/coverage.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

// For each coordinate on the sharing axis, every layer must see every sample.
void check_coverage(const Job& job, const std::deque<Walker>& walkers) {
  const Program& first = walkers.front().program();
  for (int32_t coordinate = 0; coordinate < first.mesh.sharing_size(); ++coordinate) {
    Coverage coverage(first);
    for (const Walker& w : walkers) {
      const Program& program = w.program();
      if (program.mesh.sharing_index(program.rank) != coordinate) continue;
      coverage.add_program(program, job.replicas(program));
      w.each_forward([&](int32_t layer, int32_t mb) { coverage.add_forward(layer, mb); });
    }
    coverage.check();
  }
}

}  // namespace

void verify(const Job& job, Purpose purpose) {
  check_outlines(job);
  Exchange exchange(job);
  std::deque<Walker> walkers;
  for (const Program* p : job.programs) walkers.emplace_back(*p, exchange, purpose);
  follow(walkers);
  check_finished(walkers);
  for (const Walker& w : walkers) w.check_end();
  check_coverage(job, walkers);
  exchange.check_ended();
  check_post_validations(job);
}

void verify(std::span<const Program* const> programs, Purpose purpose) {
  verify(whole_job(programs), purpose);
}

void verify(std::span<const Program> programs, Purpose purpose) {
  verify(whole_job(programs), purpose);
}

// ---- the number of concurrent messages -----------------------------------------------------------------------------

namespace {

// The most messages from one program to one rank.
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

// Follows the programs as the verifier does, but a SEND blocks while the allowed number of messages is under way.
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
