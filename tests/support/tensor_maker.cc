// See tensor_maker.h.
#include "support/tensor_maker.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace gsel::test {

namespace {

class TensorMaker {
 public:
  TensorMaker(std::vector<Program> base, int32_t tensor, Draw& draw)
      : base_(std::move(base)), tensor_(tensor), draw_(draw), outline_(base_.front()) {
    choose_divided();
    for (size_t p = 0; p < outline_.params.size(); ++p) choose_param(p);
    for (ProgramValue& v : outline_.values) choose_extents(v);
    for (ProgramLayer& l : outline_.layers)
      if (l.divided) choose_placements(l);
    redistribute();
  }

  std::vector<Program> all() {
    std::vector<Program> programs;
    for (const Program& of : base_)
      for (int32_t coordinate = 0; coordinate < tensor_; ++coordinate) programs.push_back(one(of, coordinate));
    return programs;
  }

 private:
  using Bounds = std::vector<int64_t>;

  // Any tiling of so many units, one or more each.
  Bounds tiled(int64_t units) {
    std::set<int64_t> cuts = {0, units};
    while (std::ssize(cuts) <= tensor_) cuts.insert(draw_.from(1, static_cast<int32_t>(units) - 1));
    return {cuts.begin(), cuts.end()};
  }

  // ---- which layers are divided ----

  // Gradients of a bucket are partial or not, so that its layers are divided or not together; frozen parameters join
  // nobody.
  void choose_divided() {
    const size_t n_layers = outline_.layers.size();
    std::vector<size_t> group(n_layers + outline_.params.size());
    std::iota(group.begin(), group.end(), size_t{0});
    auto join = [&](size_t a, size_t b) {
      const size_t from = group[a], to = group[b];
      std::ranges::replace(group, from, to);
    };
    for (size_t l = 0; l < n_layers; ++l)
      for (int32_t p : outline_.layers[l].params)
        if (outline_.params[p].trainable) join(l, n_layers + static_cast<size_t>(p));
    for (const Program& program : base_)
      for (const ProgramBucket& b : program.buckets)
        for (int32_t p : b.params)
          join(n_layers + static_cast<size_t>(p), n_layers + static_cast<size_t>(b.params.front()));
    std::map<size_t, bool> divided;
    for (size_t l = 0; l < n_layers; ++l) {
      const auto [found, is_new] = divided.try_emplace(group[l]);
      if (is_new) found->second = draw_.chance(70);
      outline_.layers[l].divided = found->second;
    }
  }

  bool only_divided_use(size_t p) const {
    return std::ranges::all_of(outline_.layers, [&](const ProgramLayer& l) {
      return l.divided || !std::ranges::count(l.params, static_cast<int32_t>(p));
    });
  }

  // Those of a bucket are all split, or all partial.
  void choose_param(size_t p) {
    ProgramParam& param = outline_.params[p];
    if (!only_divided_use(p)) return;
    int32_t first = static_cast<int32_t>(p);
    for (const Program& program : base_)
      for (const ProgramBucket& b : program.buckets)
        if (std::ranges::count(b.params, static_cast<int32_t>(p))) first = std::min(first, b.params.front());
    const auto [found, is_new] = split_.try_emplace(first);
    if (is_new) found->second = draw_.chance(60);
    param.partial_gradient = !found->second && param.trainable;
    if (!found->second) return;
    param.shard.dim = draw_.from(0, 2);
    param.shard.blocks = draw_.from(1, 3);
    param_bounds_[p] = tiled(draw_.from(tensor_, tensor_ + 5));
    param.shard.whole = param_bounds_[p].back();
    param.n_elems = draw_.from(1, 4);  // of a piece, until a coordinate is known
  }

  // ---- values ----

  // Two dimensions that can be split, of which the first is in blocks.
  struct Extents {
    int64_t blocks = 1;
    Bounds bounds[2];
  };

  void choose_extents(ProgramValue& v) {
    Extents e;
    if (!v.is_scalar) {
      e.blocks = draw_.from(1, 3);
      for (Bounds& b : e.bounds) b = tiled(draw_.from(tensor_, tensor_ + 4));
      v.dtype = draw_.chance(70) ? GSEL_F32 : GSEL_BF16;
      v.sample_bytes = (v.dtype == GSEL_F32 ? 4 : 2) * e.blocks * e.bounds[0].back() * e.bounds[1].back();
    }
    extents_.push_back(std::move(e));
  }

  // In parts along dimension 1 or 2; sizes follow once a coordinate is known.
  Shard shard_of(int32_t v, int32_t dim) const {
    const Extents& e = extents_[described_[v]];
    return {dim, dim == 1 ? static_cast<int32_t>(e.blocks) : 1, 0, 0, e.bounds[dim - 1].back()};
  }

  struct Want {
    Placement placement = Placement::replicate;
    int32_t dim = -1;
    auto operator<=>(const Want&) const = default;
  };

  void give(int32_t v, const Want& want) {
    outline_.values[v].placement = want.placement;
    outline_.values[v].shard = want.placement == Placement::shard ? shard_of(v, want.dim) : Shard{};
  }

  void choose_placements(ProgramLayer& l) {
    if (described_.empty())
      for (size_t v = 0; v < outline_.values.size(); ++v) described_.push_back(static_cast<int32_t>(v));
    std::vector<Want> wants(l.inputs.size());
    std::vector<size_t> can;
    bool has_parts = std::ranges::any_of(l.params, [&](int32_t p) { return !outline_.params[p].shard.is_whole(); });
    for (size_t i = 0; i < wants.size(); ++i) {
      if (outline_.values[l.inputs[i]].is_scalar) continue;
      can.push_back(i);
      if (!draw_.chance(50)) continue;
      wants[i] = {Placement::shard, draw_.from(1, 2)};
      has_parts = true;
    }
    if (!has_parts) wants[draw_.of(can)] = {Placement::shard, draw_.from(1, 2)};
    bool reduces_back = draw_.chance(20);
    for (int32_t v : l.inputs) reduces_back |= outline_.values[v].is_scalar && outline_.values[v].needs_gradient;
    if (reduces_back) l.backward_phases.push_back(phase());
    for (size_t i = 0; i < wants.size(); ++i)
      if (wants[i].placement == Placement::replicate && outline_.values[l.inputs[i]].needs_gradient && !reduces_back)
        wants[i].placement = Placement::copy;
    wants_[static_cast<size_t>(&l - outline_.layers.data())] = wants;
    choose_outputs(l);
    if (draw_.chance(20)) {
      l.forward_phases.push_back(phase());
      l.forward_phases.back().ring_shifts = true;
    }
  }

  ProgramPhase phase() { return {GSEL_AXIS_TENSOR, 4 * draw_.from(1, 5), 4 * draw_.from(0, 3), GSEL_F32, false}; }

  void choose_outputs(ProgramLayer& l) {
    const bool adds_once =
        std::ranges::none_of(l.params, [&](int32_t p) { return outline_.params[p].shard.is_whole(); });
    bool writes_replicated = false;
    const bool partial_loss = draw_.chance(50);
    for (int32_t v : l.outputs) {
      const int32_t choice = draw_.from(1, 4);
      if (outline_.values[v].is_scalar) {
        if (l.is_loss && partial_loss)
          outline_.values[v].placement = Placement::partial;
        else
          writes_replicated = true;
      } else if (choice <= 2) {
        give(v, {Placement::shard, choice});
      } else if (choice == 3 && adds_once) {
        give(v, {Placement::partial, -1});
      } else {
        writes_replicated = true;
      }
    }
    if (writes_replicated) l.forward_phases.push_back(phase());
  }

  // ---- redistributions ----

  void redistribute() {
    if (described_.empty())
      for (size_t v = 0; v < outline_.values.size(); ++v) described_.push_back(static_cast<int32_t>(v));
    std::vector<ProgramLayer> layers;
    for (size_t l = 0; l < outline_.layers.size(); ++l) {
      ProgramLayer layer = outline_.layers[l];
      before_.emplace_back();
      for (size_t i = 0; i < layer.inputs.size(); ++i) {
        const auto found = wants_.find(l);
        const Want want = found == wants_.end() ? Want{} : found->second[i];
        const int32_t v = layer.inputs[i];
        if (outline_.values[v].placement == want.placement && outline_.values[v].shard.dim == want.dim) continue;
        const auto [known, is_new] = known_.try_emplace({v, layer.stage, want}, -1);
        if (is_new) {
          known->second = new_value(v, want);
          before_.back().push_back(static_cast<int32_t>(layers.size()));
          layers.push_back(redistribution(v, known->second, layer.stage));
        }
        layer.inputs[i] = known->second;
      }
      new_id_.push_back(static_cast<int32_t>(layers.size()));
      layers.push_back(std::move(layer));
    }
    outline_.layers = std::move(layers);
  }

  int32_t new_value(int32_t v, const Want& want) {
    const auto id = static_cast<int32_t>(outline_.values.size());
    outline_.values.push_back(outline_.values[v]);
    described_.push_back(v);
    ProgramValue& value = outline_.values.back();
    value.name += "@" + std::to_string(id);
    value.is_input = false;
    give(id, want);
    return id;
  }

  ProgramLayer redistribution(int32_t from, int32_t to, int32_t stage) const {
    ProgramLayer layer;
    layer.name = outline_.values[to].name;
    layer.inputs = {from};
    layer.outputs = {to};
    layer.stage = stage;
    layer.needs_backward_input = outline_.values[to].needs_gradient;
    layer.redistributes = layer.divided = true;
    return layer;
  }

  // ---- one rank ----

  Program one(const Program& of, int32_t coordinate) {
    Program p = of;
    p.rank = coordinate + tensor_ * of.rank;
    p.mesh.size[GSEL_AXIS_TENSOR] = tensor_;
    p.params = outline_.params;
    p.values = outline_.values;
    p.layers = outline_.layers;
    for (size_t i = 0; i < p.params.size(); ++i) take_shard(p.params[i], i, coordinate);
    for (size_t v = 0; v < p.values.size(); ++v) take_shard(p.values[v], v, coordinate);
    p.step.clear();
    contributed_.clear();
    for (const gsel_instr& instr : of.step) add(instr, coordinate, p);
    return p;
  }

  void take_shard(ProgramParam& param, size_t id, int32_t coordinate) const {
    if (param.shard.is_whole()) return;
    const Bounds& bounds = param_bounds_.at(id);
    param.shard.begin = bounds[coordinate];
    param.shard.end = bounds[coordinate + 1];
    const int64_t here = param.shard.size() * param.shard.blocks;
    param.rows = param.shard.dim == 0 ? here : param.n_elems;
    param.n_elems *= here;
  }

  void take_shard(ProgramValue& value, size_t id, int32_t coordinate) const {
    if (value.shard.is_whole()) return;
    const Bounds& bounds = extents_[described_[id]].bounds[value.shard.dim - 1];
    value.shard.begin = bounds[coordinate];
    value.shard.end = bounds[coordinate + 1];
    value.sample_bytes = value.sample_bytes / value.shard.whole * value.shard.size();
  }

  static gsel_instr of_layer(gsel_instr_kind kind, int32_t layer, int32_t mb) {
    gsel_instr instr = make_instr(kind);
    instr.layer = layer;
    instr.microbatch = mb;
    return instr;
  }

  void add(gsel_instr instr, int32_t coordinate, Program& p) {
    const int32_t described = instr.layer;
    if (instr.kind == GSEL_FORWARD)
      for (int32_t c : before_[described]) p.step.push_back(of_layer(instr.kind, c, instr.microbatch));
    if (described >= 0) instr.layer = new_id_[described];
    if (instr.kind == GSEL_INSTR_SEND || instr.kind == GSEL_INSTR_RECV) instr.peer = coordinate + tensor_ * instr.peer;
    begin_end(instr, p);
    p.step.push_back(instr);
    if (instr.kind == GSEL_BACKWARD || instr.kind == GSEL_BACKWARD_INPUT) bring_back(instr, p);
  }

  // The instructions of the tensor axis at the end of a step, before the first instruction that must follow them.
  void begin_end(const gsel_instr& next, Program& p) {
    auto has = [&](auto... kinds) { return ((next.kind == kinds) || ...); };
    auto came = [&](gsel_instr_kind kind) { return std::ranges::count(p.step, kind, &gsel_instr::kind) > 0; };
    auto push = [&](gsel_instr_kind kind, int32_t bucket) {
      gsel_instr instr = make_instr(kind);
      instr.bucket = bucket;
      instr.axis = GSEL_AXIS_TENSOR;
      p.step.push_back(instr);
    };
    const auto loss = std::ranges::find_if(p.layers, &ProgramLayer::is_loss);
    const bool is_partial = p.values[loss->outputs.front()].placement == Placement::partial;
    if (has(GSEL_INSTR_LOSS_ALLREDUCE) && !came(next.kind) && is_partial) push(next.kind, -1);
    if (has(GSEL_INSTR_ALLREDUCE_TIED, GSEL_INSTR_OVERFLOW, GSEL_INSTR_NORM, GSEL_INSTR_STEP) &&
        !came(GSEL_INSTR_ALLREDUCE_TIED) && !came(GSEL_INSTR_OVERFLOW) && !came(GSEL_INSTR_NORM) &&
        !came(GSEL_INSTR_STEP))
      for (size_t b = 0; b < p.buckets.size(); ++b)
        if (p.params[p.buckets[b].params.front()].partial_gradient)
          push(GSEL_INSTR_ALLREDUCE_PARTIAL, static_cast<int32_t>(b));
    if (has(GSEL_INSTR_OVERFLOW) && !came(next.kind)) push(next.kind, -1);
  }

  // A redistribution goes back once all who read its output have.
  void bring_back(const gsel_instr& instr, Program& p) {
    for (int32_t v : p.layers[instr.layer].inputs) {
      if (described_[v] == v || !p.values[v].needs_gradient) continue;
      int64_t readers = 0;
      for (const ProgramLayer& l : p.layers) readers += std::ranges::count(l.inputs, v);
      if (++contributed_[{v, instr.microbatch}] < readers) continue;
      const auto writes = [&](const ProgramLayer& l) { return std::ranges::count(l.outputs, v) > 0; };
      const auto at = std::ranges::find_if(p.layers, writes) - p.layers.begin();
      p.step.push_back(of_layer(GSEL_BACKWARD_INPUT, static_cast<int32_t>(at), instr.microbatch));
    }
  }

  const std::vector<Program> base_;
  const int32_t tensor_;  // ranks of the tensor axis
  Draw& draw_;
  Program outline_;  // parts without bounds
  std::map<int32_t, bool> split_;
  std::map<size_t, Bounds> param_bounds_;
  std::vector<Extents> extents_;                                 // by value as described
  std::vector<int32_t> described_;                               // by value
  std::map<size_t, std::vector<Want>> wants_;                    // by divided layer as described: of its inputs
  std::map<std::tuple<int32_t, int32_t, Want>, int32_t> known_;  // by value and stage
  std::vector<std::vector<int32_t>> before_;  // by layer as described: redistributions that stand before it
  std::vector<int32_t> new_id_;               // by layer as described
  std::map<std::pair<int32_t, int32_t>, int64_t> contributed_;  // to a redistributed value's gradient, by micro-batch
};

}  // namespace

std::vector<Program> divide_by_tensor(const std::vector<Program>& base, int32_t ranks, Draw& draw) {
  return TensorMaker(base, ranks, draw).all();
}

}  // namespace gsel::test
