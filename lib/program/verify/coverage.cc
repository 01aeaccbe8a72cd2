// program/verify/coverage.cc: see coverage.h.
#include "program/verify/coverage.h"

#include <algorithm>

#include "program/stages.h"

namespace gsel {

void Coverage::add_rank(const Program& program, const Job::Replica& replica) {
  ranks_.emplace_back(&program, replica);
  for (const Microbatch& m : replica.microbatches) batch_ = std::max(batch_, m.first + m.count);
}

void Coverage::add_forward(const Job::Replica& replica, int32_t layer, int32_t microbatch) {
  const Microbatch& m = replica.microbatches[microbatch];
  if (m.count > 0) runs_[layer].push_back({m.first, m.first + m.count, replica.rank, microbatch});
}

void Coverage::check() {
  if (ranks_.empty()) return;
  for (size_t l = 0; l < runs_.size(); ++l) {
    std::vector<Run>& runs = runs_[l];
    std::ranges::sort(
        runs, [](const Run& a, const Run& b) { return a.first != b.first ? a.first < b.first : a.rank < b.rank; });
    int64_t seen = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const Run& run = runs[i];
      if (run.first > seen) refuse_missing(static_cast<int32_t>(l), seen, run.first);
      if (run.first < seen)
        throw Error(GSEL_ERR_PROGRAM,
                    fmt::format("rank {}, end of step: layer \"{}\" runs forward on samples {} to {} in micro-batch "
                                "{}; rank {} runs it on some of them in micro-batch {}; each is seen once",
                                run.rank, outline_.layers[l].name, run.first, run.end - 1, run.microbatch,
                                runs[i - 1].rank, runs[i - 1].microbatch))
            .about_rank(run.rank);
      seen = run.end;
    }
    if (seen < batch_) refuse_missing(static_cast<int32_t>(l), seen, batch_);
  }
}

// The error names a rank that has them in a micro-batch; where none has, the first.
void Coverage::refuse_missing(int32_t layer, int64_t first, int64_t end) const {
  int32_t rank = ranks_.front().second.rank;
  std::string hint;
  for (const auto& [program, replica] : ranks_) {
    if (!is_here(*program, layer)) continue;
    const auto found = std::ranges::find_if(
        replica.microbatches, [&](const Microbatch& m) { return m.first <= first && first < m.first + m.count; });
    if (found == replica.microbatches.end()) continue;
    rank = replica.rank;
    hint = fmt::format("; its micro-batch {} has them", found - replica.microbatches.begin());
    break;
  }
  throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of step: no rank runs the forward of layer \"{}\" on samples "
                                            "{} to {} of the batch{}",
                                            rank, outline_.layers[layer].name, first, end - 1, hint))
      .about_rank(rank);
}

}  // namespace gsel
