// program/verify/coverage.cc: see coverage.h.
#include "program/verify/coverage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "program/stages.h"

namespace gsel {

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
  std::set<std::vector<Forward>> looked_at;
  for (std::vector<Forward>& forwards : forwards_) std::ranges::sort(forwards);
  for (size_t l = 0; l < forwards_.size(); ++l)
    if (looked_at.insert(forwards_[l]).second) check_layer(static_cast<int32_t>(l));
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

}  // namespace gsel
