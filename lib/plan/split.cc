// plan/split.cc: see split.h.
#include "plan/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "plan/work_cuts.h"

namespace gsel::plan {
namespace {

// Divides `total` among the stages by weight, or evenly without weights.
std::vector<int64_t> dealt(int64_t total, int32_t stages, const std::vector<double>& weights) {
  std::vector<int64_t> counts(static_cast<size_t>(stages));
  if (weights.empty()) {
    // The remainder goes to the middle stages: the first has the embedding and the last the head.
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
  while (left != 0) {  // the remainder of rounding goes to, or comes from, the stage farthest from its share
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

double boundary_of(const Workload& w) {
  double most = 0;
  for (const Block& block : w.blocks)
    if (block.kind != BlockKind::head) most = std::max(most, block.output);
  return most;
}

void add_blocks(const Block& block, double n, StageRun& run) {
  if (n == 0) return;
  run.costs += block.costs * n;
  run.kept_outputs += n * block.output;
  if (block.kind == BlockKind::layer) run.layers += n;
}

// The last stage also has the embedding's matrix if the head uses it. Consecutive middle stages with equally many
// layers of the same kind are merged.
void add_run(const Workload& w, int32_t stage, int32_t stages, StageRun run, Split& out) {
  const bool is_last = stage + 1 == stages;
  if (is_last && stages > 1) (w.tied_out ? run.costs.params_whole : run.costs.params_divided) += w.tied_params;
  StageRun* last = out.runs.empty() ? nullptr : &out.runs.back();
  if (last && !is_last && stage > 1 && run.layers == last->layers &&
      last->costs.params_divided == run.costs.params_divided && last->costs.flop_dense == run.costs.flop_dense)
    ++last->count;
  else
    out.runs.push_back(run);
}

// ---- whole layers ----

// Takes the layers of a workload in order.
class LayerWalk {
 public:
  explicit LayerWalk(const Workload& w) : w_(w) {}

  // Also adds blocks of other kinds before the next layer; `rest`: adds all that are left.
  void take(int64_t n, bool rest, StageRun& into) {
    while (at_ < w_.blocks.size()) {
      const Block& block = w_.blocks[at_];
      const bool layer = block.kind == BlockKind::layer;
      if (layer && n == 0 && !rest) return;
      if (!layer && n == 0 && !rest && block.kind == BlockKind::head) return;
      const int64_t some = layer && !rest ? std::min(n, block.count - used_) : block.count - used_;
      add_blocks(block, static_cast<double>(some), into);
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

// ---- equal work ----

constexpr double kRounding = 1e-9;  // of a layer: rounding errors of sums in different order

// Splits at the cuts; blocks without work go with the block after them.
Split split_at(const Workload& w, const Layout& l, const std::vector<double>& cuts) {
  Split out;
  out.stages = static_cast<int32_t>(cuts.size());
  out.boundary = boundary_of(w);
  StageRun run{0, 1, {}, 0, 0};
  const auto next = [&] {
    add_run(w, run.first, out.stages, run, out);
    run = {run.first + 1, 1, {}, 0, 0};
  };
  double at = 0;
  for (const Block& block : w.blocks) {
    const double work = work_of(block, l);
    auto left = static_cast<double>(block.count);
    while (run.first + 1 < out.stages && block.kind != BlockKind::embedding && at + left * work > cuts[run.first]) {
      double some = work > 0 ? std::max(0.0, (cuts[run.first] - at) / work) : 0;
      if (const double whole = std::round(some); std::abs(some - whole) < kRounding) some = whole;
      add_blocks(block, some, run);
      left -= some, at = cuts[run.first];
      next();
    }
    add_blocks(block, left, run);
    at += left * work;
  }
  while (run.first < out.stages) next();
  return out;
}

}  // namespace

std::vector<int64_t> layers_of_stages(const Workload& w, int32_t stages, const std::vector<double>& weights) {
  const int64_t layers = w.layers();
  if (stages < 1 || (stages > 1 && layers < stages))
    fail(GSEL_ERR_ARG, "{} has {} layers, and a pipeline of {} stages was asked for; at most {} stages fit", w.name,
         layers, stages, layers);
  return stages == 1 ? std::vector<int64_t>{layers} : dealt(layers, stages, weights);
}

Split split_as(const Workload& w, const std::vector<int64_t>& layers) {
  Split out;
  out.stages = static_cast<int32_t>(layers.size());
  out.boundary = boundary_of(w);
  LayerWalk walk(w);
  for (int32_t i = 0; i < out.stages; ++i) {
    StageRun run{i, 1, {}, 0, 0};
    walk.take(layers[static_cast<size_t>(i)], i + 1 == out.stages, run);
    add_run(w, i, out.stages, run, out);
  }
  return out;
}

Split split(const Workload& w, int32_t stages, const std::vector<double>& weights) {
  return split_as(w, layers_of_stages(w, stages, weights));
}

Split split_for(const Workload& w, const Layout& l, const Shares& shares, const Recipe& recipe) {
  if (l.pipeline > 1 && recipe.cuts_anywhere) {
    std::vector<double> weights(shares.stage_layers.begin(), shares.stage_layers.end());
    if (weights.empty()) weights.resize(static_cast<size_t>(l.pipeline), 1);
    if (const std::vector<double> cuts = work_cuts(w, l, recipe, std::move(weights)); !cuts.empty())
      return split_at(w, l, cuts);
  }
  return shares.stage_layers.empty() ? split(w, l.pipeline) : split_as(w, shares.stage_layers);
}

}  // namespace gsel::plan
