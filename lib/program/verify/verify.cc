// program/verify/verify.cc: follows the programs of a job together. It is a deadlock when no rank can go on and some
// have not ended.
#include "program/verify/verify.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "program/job.h"
#include "program/stages.h"
#include "program/verify/checks.h"
#include "program/verify/walker.h"

namespace gsel {
namespace {

// ---- coverage of the batch -----------------------------------------------------------------------------------------

// Every layer runs once on every sample of the batch over all ranks, in whole micro-batches or shards of them.

// The forwards of one coordinate on the sharing axis; its ranks together must cover the batch.
class Coverage {
 public:
  explicit Coverage(const Program& outline) : outline_(outline), forwards_(outline.layers.size()) {}

  // Adds a program and its replicas; the micro-batches of the replicas determine the size of the batch. Then add its
  // forwards. A coordinate without programs is not checked.
  void add_program(const Program& program, std::vector<Job::Replica> replicas);
  void add_forward(int32_t layer, int32_t microbatch);

  // GSEL_ERR_PROGRAM naming a layer and samples that it runs on never or twice.
  void check();

 private:
  struct Member {
    const Program* program;
    std::vector<Job::Replica> replicas;
  };
  struct Forward {
    int32_t member, microbatch;
    auto operator<=>(const Forward&) const = default;
  };
  struct Run {
    int64_t first, end;
    int32_t rank, microbatch;
  };
  std::vector<Run> runs_of(const std::vector<Forward>& forwards) const;
  void check_layer(int32_t layer) const;
  [[noreturn]] void refuse_missing(int32_t layer, int64_t first, int64_t end) const;

  const Program& outline_;
  std::vector<Member> members_;
  std::vector<std::vector<Forward>> forwards_;  // by layer
  int64_t batch_ = 0;
};

void Coverage::add_program(const Program& program, std::vector<Job::Replica> replicas) {
  for (const Job::Replica& replica : replicas)
    for (const Microbatch& m : replica.microbatches) batch_ = std::max(batch_, m.first + m.count);
  members_.push_back({&program, std::move(replicas)});
}

void Coverage::add_forward(int32_t layer, int32_t microbatch) {
  forwards_[layer].push_back({static_cast<int32_t>(members_.size()) - 1, microbatch});
}

// Layers with the same forwards cover the same samples, so one of them is checked.
void Coverage::check() {
  if (members_.empty()) return;
  std::set<std::vector<Forward>> checked;
  for (std::vector<Forward>& forwards : forwards_) std::ranges::sort(forwards);
  for (size_t l = 0; l < forwards_.size(); ++l)
    if (checked.insert(forwards_[l]).second) check_layer(static_cast<int32_t>(l));
}

std::vector<Coverage::Run> Coverage::runs_of(const std::vector<Forward>& forwards) const {
  std::vector<Run> runs;
  for (auto first = forwards.begin(); first != forwards.end();) {
    const auto end = std::find_if(first, forwards.end(), [&](const Forward& f) { return f.member != first->member; });
    // Usually the samples of a replica follow those of the replica before, so runs are sorted already.
    for (const Job::Replica& replica : members_[first->member].replicas)
      for (auto forward = first; forward != end; ++forward) {
        const Microbatch& m = replica.microbatches[forward->microbatch];
        if (m.count > 0) runs.push_back({m.first, m.first + m.count, replica.rank, forward->microbatch});
      }
    first = end;
  }
  const auto before = [](const Run& a, const Run& b) {
    return a.first != b.first ? a.first < b.first : a.rank < b.rank;
  };
  if (!std::ranges::is_sorted(runs, before)) std::ranges::sort(runs, before);
  return runs;
}

void Coverage::check_layer(int32_t layer) const {
  const std::vector<Run> runs = runs_of(forwards_[layer]);
  int64_t seen = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    if (run.first > seen) refuse_missing(layer, seen, run.first);
    if (run.first < seen)
      throw Error(GSEL_ERR_PROGRAM,
                  fmt::format("rank {}, end of step: layer \"{}\" runs forward on samples {} to {} in micro-batch "
                              "{}; rank {} runs it on some of them in micro-batch {}; each is seen once",
                              run.rank, outline_.layers[layer].name, run.first, run.end - 1, run.microbatch,
                              runs[i - 1].rank, runs[i - 1].microbatch))
          .about_rank(run.rank);
    seen = run.end;
  }
  if (seen < batch_) refuse_missing(layer, seen, batch_);
}

// Names a rank that has the samples in a micro-batch, else the first rank.
void Coverage::refuse_missing(int32_t layer, int64_t first, int64_t end) const {
  int32_t rank = members_.front().replicas.front().rank;
  std::string hint;
  const auto look_at = [&](const Job::Replica& replica) {
    const auto found = std::ranges::find_if(
        replica.microbatches, [&](const Microbatch& m) { return m.first <= first && first < m.first + m.count; });
    if (found == replica.microbatches.end() || !hint.empty()) return;
    rank = replica.rank;
    hint = fmt::format("; its micro-batch {} has them", found - replica.microbatches.begin());
  };
  for (const Member& member : members_)
    if (is_here(*member.program, layer)) std::ranges::for_each(member.replicas, look_at);
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of step: no rank runs the forward of layer \"{}\" on samples "
                                            "{} to {} of the batch{}",
                                            rank, outline_.layers[layer].name, first, end - 1, hint))
      .about_rank(rank);
}

// ---- all checks ----------------------------------------------------------------------------------------------------

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
      if (instr_row(instr.kind).is_send()) most = std::max(most, ++counts[instr.peer]);
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
