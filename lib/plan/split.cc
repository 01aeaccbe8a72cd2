// plan/split.cc: deals the blocks of a workload to the stages of a pipeline (workload.h).
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "plan/workload.h"

namespace gsel::plan {
namespace {

// How many of `total` each stage has, by weights; equal where there are none.
std::vector<int64_t> dealt(int64_t total, int32_t stages, const std::vector<double>& weights) {
  std::vector<int64_t> counts(static_cast<size_t>(stages));
  if (weights.empty()) {
    // The remainder goes to stages in the middle: the first and the last have embedding and head beside.
    const int64_t each = total / stages, more = total % stages;
    const int64_t first = (stages - more) / 2;
    for (int32_t i = 0; i < stages; ++i) counts[i] = each + (i >= first && i < first + more ? 1 : 0);
    return counts;
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  int64_t left = total;
  for (int32_t i = 0; i < stages; ++i) {
    counts[i] = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(total) * weights[i] / sum));
    left -= counts[i];
  }
  while (left != 0) {  // what rounding left goes to, or comes from, who is farthest from its share
    int32_t best = -1;
    double farthest = 0;
    for (int32_t i = 0; i < stages; ++i) {
      if (left < 0 && counts[i] == 1) continue;
      const double off = static_cast<double>(total) * weights[i] / sum - static_cast<double>(counts[i]);
      const double by = left > 0 ? off : -off;
      if (best < 0 || by > farthest) best = i, farthest = by;
    }
    counts[best] += left > 0 ? 1 : -1;
    left += left > 0 ? -1 : 1;
  }
  return counts;
}

// Walks through the layers of a workload in order, taking some at a time.
class LayerWalk {
 public:
  explicit LayerWalk(const Workload& w) : w_(w) {}

  // Adds blocks of other kinds as well that stand before the next layer; `rest`: all that are left.
  void take(int64_t n, bool rest, StageRun& into) {
    while (at_ < w_.blocks.size()) {
      const Block& block = w_.blocks[at_];
      const bool layer = block.kind == BlockKind::layer;
      if (layer && n == 0 && !rest) return;
      if (!layer && n == 0 && !rest && block.kind == BlockKind::head) return;
      const int64_t some = layer && !rest ? std::min(n, block.count - used_) : block.count - used_;
      into.costs += block.costs * static_cast<double>(some);
      into.blocks += static_cast<double>(some);
      into.kept_outputs += static_cast<double>(some) * block.output;
      if (layer) n -= std::min(n, some);
      used_ += some;
      if (used_ == block.count) ++at_, used_ = 0;
    }
  }

 private:
  const Workload& w_;
  size_t at_ = 0;
  int64_t used_ = 0;
};

}  // namespace

Split split_as(const Workload& w, const std::vector<int64_t>& layers) {
  Split out;
  out.stages = static_cast<int32_t>(layers.size());
  out.layers = layers;
  for (const Block& block : w.blocks)
    if (block.kind != BlockKind::head) out.boundary = std::max(out.boundary, block.output);
  LayerWalk walk(w);
  for (int32_t i = 0; i < out.stages; ++i) {
    StageRun run{i, 1, {}, 0, 0};
    walk.take(layers[i], i + 1 == out.stages, run);
    if (i + 1 == out.stages && out.stages > 1)
      (w.tied_out ? run.costs.params_whole : run.costs.params_divided) += w.tied_params;
    // Stages in the middle that have equally many layers of the same kind are alike.
    StageRun* last = out.runs.empty() ? nullptr : &out.runs.back();
    if (last && i + 1 < out.stages && i > 1 && layers[i] == layers[i - 1] &&
        last->costs.params_divided == run.costs.params_divided && last->costs.flop_dense == run.costs.flop_dense)
      ++last->count;
    else
      out.runs.push_back(run);
  }
  return out;
}

Split split(const Workload& w, int32_t stages, const std::vector<double>& weights) {
  const int64_t layers = w.layers();
  if (stages < 1 || (stages > 1 && layers < stages))
    fail(GSEL_ERR_ARG, "{} has {} layers, and a pipeline of {} stages was asked for; at most {} stages fit", w.name,
         layers, stages, layers);
  return split_as(w, stages == 1 ? std::vector<int64_t>{layers} : dealt(layers, stages, weights));
}

}  // namespace gsel::plan
