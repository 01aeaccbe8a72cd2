// plan/split.cc: see split.h.
#include "plan/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "plan/memory.h"

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

// ---- the cuts of gsel's own strategy -------------------------------------------------------------------------------

// The strategy searches all cuts (plugins/strategy/pp/partition.c). Here are the least bounds that a greedy walk over
// the sublayers can keep, which gives the same cuts.

namespace {

bool runs_again(const Block& block, const Layout& l) {
  return l.recompute == Recompute::full && block.kind == BlockKind::layer && block.recomputable;
}

// Cumulative load of blocks, as the strategy weighs it: work, bytes of parameters, bytes of a micro-batch's
// activations.
struct Load {
  double work = 0, kept = 0, live = 0;
  Load& operator+=(const Load& o) {
    work += o.work, kept += o.kept, live += o.live;
    return *this;
  }
  Load operator*(double n) const { return {work * n, kept * n, live * n}; }
};

Load load_of(const Block& block, const Layout& l, const Recipe& recipe) {
  constexpr double kGradientAndStateBytes = 12;
  const Costs& c = block.costs;
  const double t = l.tensor, sequence = l.sequence_parallel ? t : 1;
  const double elems = c.saved_divided.elems / t + (c.saved_sequence.elems + c.saved_gathered.elems) / sequence;
  return {work_of(block, l), (c.params_divided / t + c.params_whole) * (recipe.param_bytes + kGradientAndStateBytes),
          runs_again(block, l) ? 0 : elems * recipe.element_bytes * static_cast<double>(l.microbatch)};
}

// Chooses stage ends at ends of sublayers. First minimises the largest work per weight, then the largest memory of a
// stage, then the distance from equal work.
class WorkCuts {
 public:
  WorkCuts(const Workload& w, const Layout& l, const Recipe& recipe, std::vector<double> weights)
      : weights_(std::move(weights)) {
    for (size_t s = 0; s < stages(); ++s) held_.push_back(in_flight(l, static_cast<int32_t>(s)));
    Load at;
    for (const Block& block : w.blocks) {
      const Load one = load_of(block, l, recipe);
      for (int64_t i = 0; i < block.count; ++i) {
        const Load begin = at;
        double share = 0;
        for (const double sublayer : block.sublayers) {
          Load end = begin;
          add(end += one * (share += sublayer));
        }
        add(at += one);
      }
    }
    double sum = 0;
    for (const double weight : weights_) due_.push_back((sum += weight) * at.work), most_ = std::max(most_, weight);
    for (double& due : due_) due /= sum;
    mean_ = at.work / sum;
  }

  bool can_be_cut() const { return ends_.size() >= stages(); }

  // The end of each stage. everywhere: each stage has several chunks, whose ends can be anywhere, except in the last
  // block.
  std::vector<double> run(bool everywhere) const { return everywhere ? cut_everywhere() : cut_at_sublayers(); }

 private:
  // Limits of a stage per unit of weight.
  struct Bound {
    double work = 0, bytes = std::numeric_limits<double>::infinity();
  };
  static constexpr int32_t kRounds = 40, kFewRounds = 16;

  // A block without work goes with the block after it.
  void add(const Load& end) {
    if (end.work > (ends_.empty() ? 0 : ends_.back().work)) ends_.push_back(end);
  }
  size_t stages() const { return weights_.size(); }
  Load end_of(size_t i) const { return i == 0 ? Load{} : ends_[i - 1]; }
  double bytes_of(size_t stage, const Load& begin, const Load& end) const {
    return end.kept - begin.kept + held_[stage] * (end.live - begin.live);
  }

  std::vector<double> cut_everywhere() const {
    std::vector<double> cuts;
    const double last = end_of(ends_.size() - 1).work, due = due_[stages() - 2];
    for (size_t s = 0; s + 1 < stages(); ++s) cuts.push_back(due_[s] * (due > last ? last / due : 1));
    cuts.push_back(ends_.back().work);
    return cuts;
  }

  // The farthest end of a stage that begins after `at` sublayers. Other stages need at least one each.
  size_t reach(size_t stage, size_t at, const Bound& bound) const {
    const Load begin = end_of(at);
    const double work = (begin.work + bound.work * weights_[stage]) * (1 + 1e-12);
    const double bytes = bound.bytes * weights_[stage];
    const auto end = std::partition_point(ends_.begin() + static_cast<ptrdiff_t>(at), ends_.end(), [&](const Load& e) {
      return e.work <= work && bytes_of(stage, begin, e) <= bytes;
    });
    return std::min(static_cast<size_t>(end - ends_.begin()), ends_.size() - (stages() - 1 - stage));
  }
  bool is_enough(const Bound& bound) const {
    size_t at = 0;
    for (size_t s = 0; s < stages(); ++s) {
      const size_t next = reach(s, at, bound);
      if (next <= at) return false;
      at = next;
    }
    return at == ends_.size();
  }

  // The least work bound that is enough, by bisection.
  Bound least_bound() const {
    Bound least{mean_}, enough{mean_ * most_ * static_cast<double>(stages())};
    while (!is_enough(enough)) enough.work *= 2;
    if (is_enough(least)) enough = least;
    for (int32_t i = 0; i < kRounds && enough.work > least.work; ++i) {
      const Bound middle{(least.work + enough.work) / 2};
      (is_enough(middle) ? enough : least) = middle;
    }
    double few = 0, many = bytes_of(0, {}, ends_.back()) / *std::ranges::min_element(weights_);
    for (int32_t i = 0; i < kFewRounds; ++i) {
      const double middle = (few + many) / 2;
      (is_enough({enough.work, middle}) ? many : few) = middle;
    }
    return {enough.work, many};
  }

  std::vector<double> cut_at_sublayers() const {
    const Bound bound = least_bound();
    // The latest possible begin of each stage, and the earliest with which the stages after it can take the rest.
    std::vector<size_t> latest(stages() + 1, 0);
    for (size_t s = 0; s < stages(); ++s) latest[s + 1] = reach(s, latest[s], bound);
    std::vector<size_t> earliest = latest;
    for (size_t s = stages() - 1; s > 0; --s)
      while (earliest[s] > s && reach(s, earliest[s] - 1, bound) >= earliest[s + 1]) --earliest[s];
    std::vector<double> cuts;
    size_t at = 0;
    for (size_t s = 0; s + 1 < stages(); ++s) {
      const size_t least = std::max(earliest[s + 1], at + 1), most = std::max(least, reach(s, at, bound));
      auto nearest = static_cast<size_t>(std::ranges::lower_bound(ends_, due_[s], {}, &Load::work) - ends_.begin()) + 1;
      if (nearest > 1 && due_[s] - end_of(nearest - 1).work < end_of(nearest).work - due_[s]) --nearest;
      at = std::clamp(nearest, least, most);
      cuts.push_back(end_of(at).work);
    }
    cuts.push_back(ends_.back().work);
    return cuts;
  }

  std::vector<double> weights_, held_;  // of the stages; micro-batches that each stage holds
  std::vector<double> due_;             // cumulative work at the ideal end of each stage
  std::vector<Load> ends_;              // at the end of each sublayer, ascending
  double mean_ = 0, most_ = 0;          // work per unit of weight; the largest weight
};

}  // namespace

double work_of(const Block& block, const Layout& l) {
  const Costs& c = block.costs;
  const double t = l.tensor, sequence = l.sequence_parallel ? t : 1;
  const double again = runs_again(block, l) ? 1 : 0;
  const double dense = c.flop_dense / t + c.flop_sequence / sequence + c.flop_whole;
  const double core = c.flop_core / t + c.core_whole / sequence;
  return dense * ((block.trains ? 3 : 2) + again) + core * (2 + again);
}

std::vector<double> work_cuts(const Workload& workload, const Layout& layout, const Recipe& recipe,
                              std::vector<double> weights) {
  const WorkCuts cuts(workload, layout, recipe, std::move(weights));
  return cuts.can_be_cut() ? cuts.run(layout.chunks > 1) : std::vector<double>();
}

}  // namespace gsel::plan
