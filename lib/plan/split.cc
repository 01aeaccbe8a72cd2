// plan/split.cc: see split.h.
#include "plan/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

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

// The last stage reads the embedding's matrix where it is the head's as well. Stages in the middle that have equally
// many layers of the same kind are alike.
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

// Of one of a block's layers on a rank, in forward operations: as strategy "pp" counts it.
double work_of(const Block& block, const Layout& l) {
  const Costs& c = block.costs;
  const double t = l.tensor, sequence = l.sequence_parallel ? t : 1;
  const double again = l.recompute == Recompute::full && block.kind == BlockKind::layer && block.recomputable ? 1 : 0;
  const double dense = c.flop_dense / t + c.flop_sequence / sequence + c.flop_whole;
  const double core = c.flop_core / t + c.core_whole / sequence;
  return dense * ((block.trains ? 3 : 2) + again) + core * (2 + again);
}

// Where stages end: at ends of pieces, so that the stage with most work, divided by its weight, has as little as may
// be, and the others about what is due.
class WorkCuts {
 public:
  WorkCuts(const Workload& w, const Layout& l, std::vector<double> weights) : weights_(std::move(weights)) {
    double at = 0;
    for (const Block& block : w.blocks) {
      const double work = work_of(block, l);
      for (int64_t i = 0; i < block.count; ++i) {
        const double begin = at;
        double share = 0;
        for (const double piece : block.pieces) add(begin + (share += piece) * work);
        add(at = begin + work);
      }
    }
    double sum = 0;
    for (const double weight : weights_) due_.push_back((sum += weight) * at), most_ = std::max(most_, weight);
    for (double& due : due_) due /= sum;
    mean_ = at / sum;
  }

  bool can_be_cut() const { return ends_.size() >= weights_.size(); }

  // Of each stage. everywhere: each stage is several chunks, whose ends move freely, but that of the last block.
  std::vector<double> run(bool everywhere) {
    return everywhere ? cut_everywhere() : cut_at_pieces();
  }

 private:
  static constexpr int32_t kRounds = 40;

  void add(double end) {
    if (end > (ends_.empty() ? 0 : ends_.back())) ends_.push_back(end);
  }
  size_t stages() const { return weights_.size(); }
  double end_of(size_t i) const { return i == 0 ? 0 : ends_[i - 1]; }

  std::vector<double> cut_everywhere() const {
    std::vector<double> cuts;
    const double last = end_of(ends_.size() - 1), due = due_[stages() - 2];
    for (size_t s = 0; s + 1 < stages(); ++s) cuts.push_back(due_[s] * (due > last ? last / due : 1));
    cuts.push_back(ends_.back());
    return cuts;
  }

  // The farthest end of a stage that begins behind `begin` pieces and takes `load` for each unit of weight at most.
  // Others need a piece each.
  size_t reach(size_t stage, size_t begin, double load) const {
    const double to = (end_of(begin) + load * weights_[stage]) * (1 + 1e-12);
    const auto end = static_cast<size_t>(std::ranges::upper_bound(ends_, to) - ends_.begin());
    return std::min(end, ends_.size() - (stages() - 1 - stage));
  }
  bool is_enough(double load) const {
    size_t at = 0;
    for (size_t s = 0; s < stages(); ++s) {
      const size_t next = reach(s, at, load);
      if (next <= at) return false;
      at = next;
    }
    return at == ends_.size();
  }

  // Half of what is asked again and again.
  double least_load() const {
    double least = mean_, enough = mean_ * most_ * static_cast<double>(stages());
    while (!is_enough(enough)) enough *= 2;
    for (int32_t i = 0; i < kRounds && !is_enough(least); ++i) {
      const double middle = (least + enough) / 2;
      (is_enough(middle) ? enough : least) = middle;
    }
    return is_enough(least) ? least : enough;
  }

  std::vector<double> cut_at_pieces() const {
    const double load = least_load();
    // Where a stage begins at the latest; where it must have begun, so that those behind it can take the rest.
    std::vector<size_t> latest(stages() + 1, 0);
    for (size_t s = 0; s < stages(); ++s) latest[s + 1] = reach(s, latest[s], load);
    std::vector<size_t> earliest = latest;
    for (size_t s = stages() - 1; s > 0; --s)
      while (earliest[s] > s && reach(s, earliest[s] - 1, load) >= earliest[s + 1]) --earliest[s];
    std::vector<double> cuts;
    size_t at = 0;
    for (size_t s = 0; s + 1 < stages(); ++s) {
      const size_t least = std::max(earliest[s + 1], at + 1), most = std::max(least, reach(s, at, load));
      auto nearest = static_cast<size_t>(std::ranges::lower_bound(ends_, due_[s]) - ends_.begin()) + 1;
      if (nearest > 1 && due_[s] - end_of(nearest - 1) < end_of(nearest) - due_[s]) --nearest;
      at = std::clamp(nearest, least, most);
      cuts.push_back(end_of(at));
    }
    cuts.push_back(ends_.back());
    return cuts;
  }

  std::vector<double> weights_;  // of the stages
  std::vector<double> due_;      // where each would end if there were cuts everywhere
  std::vector<double> ends_;     // of pieces, ascending
  double mean_ = 0, most_ = 0;   // work for each unit of weight; the largest weight
};

constexpr double kRounding = 1e-9;  // of a layer: sums of the same numbers in another order

// What lies between the cuts; blocks without work go with the one behind them.
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
    WorkCuts cuts(w, l, std::move(weights));
    if (cuts.can_be_cut()) return split_at(w, l, cuts.run(l.chunks > 1));
  }
  return shares.stage_layers.empty() ? split(w, l.pipeline) : split_as(w, shares.stage_layers);
}

}  // namespace gsel::plan
