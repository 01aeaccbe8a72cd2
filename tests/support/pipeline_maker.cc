// See pipeline_maker.h.
#include "support/pipeline_maker.h"

#include <algorithm>
#include <map>
#include <set>

#include "train/compile/exchange_programs.h"

namespace gsel::test {

PipelineShape PipelineShape::drawn(Draw& draw) {
  PipelineShape s;
  s.pipeline = draw.from(2, 4);
  s.data = draw.from(1, 3);
  s.chunks = draw.from(1, 3);
  s.microbatches = draw.from(1, 6);
  s.sharding = s.data == 1 ? Sharding::none : static_cast<Sharding>(draw.from(0, 3));
  s.clip = draw.chance(50);
  s.overflow = draw.chance(50);
  s.halves = draw.chance(50);
  s.empty = draw.chance(20);
  s.defers = (s.clip || s.overflow) && s.chunks != 2;
  return s;
}

namespace {

// F, I, W, or B for both halves.
struct PipelineAction {
  char kind;
  int32_t stage, microbatch;
};

class PipelineMaker {
 public:
  PipelineMaker(const PipelineShape& shape, Draw& draw) : shape_(shape), draw_(draw) {
    assign_stages();
    make_model();
    order_actions();
    for (int32_t rank = 0; rank < shape_.pipeline; ++rank) list_sent(rank);
  }

  std::vector<Program> all() {
    std::vector<Program> programs;
    for (int32_t rank = 0; rank < shape_.pipeline * shape_.data; ++rank) programs.push_back(one(rank));
    if (shape_.defers) {
      for (Program& p : programs) post_validate_late(p);
      place_post_validations(programs);
    }
    return programs;
  }

 private:
  int32_t n_stages() const { return static_cast<int32_t>(outline_.rank_of_stage.size()); }
  int32_t pipeline_rank_of(int32_t layer) const { return outline_.rank_of_stage[outline_.layers[layer].stage]; }

  // ---- the model ----

  void assign_stages() {
    std::vector<int32_t>& rank_of_stage = outline_.rank_of_stage;
    rank_of_stage.clear();
    const bool any = draw_.chance(30), turns = draw_.chance(50);
    for (int32_t chunk = 0; chunk < shape_.chunks; ++chunk)
      for (int32_t i = 0; i < shape_.pipeline; ++i)
        rank_of_stage.push_back(any && chunk         ? draw_.from(0, shape_.pipeline - 1)
                                : turns && chunk % 2 ? shape_.pipeline - 1 - i
                                                     : i);
  }

  int32_t add_value(const std::string& name, int64_t bytes) {
    outline_.values.push_back({name, bytes});
    return static_cast<int32_t>(outline_.values.size()) - 1;
  }

  void make_model() {
    Program& p = outline_;
    const int32_t n_layers = n_stages() + draw_.from(0, 5);
    for (const char* name : {"tokens", "mask", "targets"}) p.values[add_value(name, draw_.from(1, 9))].is_input = true;
    std::vector<int32_t> readable = {0};
    std::set<int32_t> unread;
    for (int32_t l = 0; l < n_layers; ++l) {
      ProgramLayer layer;
      layer.name = "l" + std::to_string(l);
      layer.stage = stage_of(l, n_layers);
      layer.is_loss = l + 1 == n_layers;
      draw_inputs(layer, readable, unread);
      draw_params(layer, l);
      draw_outputs(layer, l, readable, unread);
      fused_.push_back(draw_.chance(30));
      p.layers.push_back(std::move(layer));
    }
  }

  // Each stage has a layer; the rest fall where they fall.
  int32_t stage_of(int32_t layer, int32_t n_layers) {
    if (cuts_.empty()) {
      std::set<int32_t> cuts;
      while (static_cast<int32_t>(cuts.size()) < n_stages() - 1) cuts.insert(draw_.from(1, n_layers - 1));
      cuts_.assign(cuts.begin(), cuts.end());
      cuts_.push_back(n_layers);
    }
    return static_cast<int32_t>(std::ranges::upper_bound(cuts_, layer) - cuts_.begin());
  }

  void draw_inputs(ProgramLayer& layer, const std::vector<int32_t>& readable, std::set<int32_t>& unread) {
    std::set<int32_t> inputs = {readable.back()};
    for (int32_t i = draw_.from(0, 2); i > 0; --i) inputs.insert(draw_.of(readable));
    if (draw_.chance(20)) inputs.insert(1);
    if (layer.is_loss) {
      inputs.insert(2);
      inputs.insert(unread.begin(), unread.end());
    }
    layer.inputs.assign(inputs.begin(), inputs.end());
    for (int32_t v : inputs) {
      unread.erase(v);
      layer.needs_backward_input |= outline_.values[v].needs_gradient;
    }
  }

  void draw_params(ProgramLayer& layer, int32_t l) {
    std::vector<ProgramParam>& params = outline_.params;
    for (int32_t i = draw_.from(l == 0 ? 1 : 0, 2); i > 0; --i) {
      auto param = static_cast<int32_t>(params.size());
      if (param > 0 && draw_.chance(30))
        param = draw_.from(0, param - 1);  // tied, to another stage perhaps
      else
        params.push_back({"p" + std::to_string(param), draw_.from(1, 50), GSEL_F32, l == 0 || draw_.chance(85)});
      if (std::ranges::count(layer.params, param)) continue;
      layer.params.push_back(param);
      layer.needs_backward_weight |= params[param].trainable;
    }
  }

  void draw_outputs(ProgramLayer& layer, int32_t l, std::vector<int32_t>& readable, std::set<int32_t>& unread) {
    for (int32_t i = layer.is_loss ? 2 : draw_.from(1, 2); i > 0; --i) {
      const int32_t v = add_value("v" + std::to_string(l) + (i == 1 ? "" : "b"), draw_.from(1, 20));
      ProgramValue& value = outline_.values[v];
      layer.outputs.push_back(v);
      value.is_scalar = layer.is_loss || (i > 1 && draw_.chance(30));
      if (layer.is_loss) continue;
      // The second may be integers.
      value.needs_gradient =
          (layer.needs_backward_input || layer.needs_backward_weight) && (i == 1 || draw_.chance(50));
      readable.push_back(v);
      unread.insert(v);
    }
  }

  // ---- the order ----

  // One order of all actions, drawn among those that can run; each pipeline rank has those of its stages.
  void order_actions() {
    rows_.resize(shape_.pipeline);
    std::vector<PipelineAction> ready;
    for (int32_t m = 0; m < shape_.microbatches; ++m) ready.push_back({'F', 0, m});
    const int32_t last = n_stages() - 1;
    const int32_t eagerness = draw_.from(0, 2);
    while (!ready.empty()) {
      size_t at = draw_.from(0, static_cast<int32_t>(ready.size()) - 1);
      if (eagerness == 1) at = 0;
      if (eagerness == 2) at = ready.size() - 1;
      const PipelineAction a = ready[at];
      ready.erase(ready.begin() + static_cast<ptrdiff_t>(at));
      rows_[outline_.rank_of_stage[a.stage]].push_back(a);
      const char back = shape_.halves ? 'I' : 'B';
      if (a.kind == 'F')
        ready.push_back(a.stage < last ? PipelineAction{'F', a.stage + 1, a.microbatch}
                                       : PipelineAction{back, last, a.microbatch});
      if (a.kind == back && a.stage > 0) ready.push_back({back, a.stage - 1, a.microbatch});
      if (a.kind == 'I') ready.push_back({'W', a.stage, a.microbatch});
    }
  }

  // ---- values that cross cuts ----

  bool touches(int32_t layer, int32_t v) const {
    const ProgramLayer& l = outline_.layers[layer];
    return std::ranges::count(l.inputs, v) || std::ranges::count(l.outputs, v);
  }
  // Stages of a pipeline rank that produce or read a value, ascending.
  std::vector<int32_t> stages_with(int32_t v, int32_t pipeline_rank) const {
    std::set<int32_t> stages;
    for (int32_t l = 0; l < static_cast<int32_t>(outline_.layers.size()); ++l)
      if (touches(l, v) && pipeline_rank_of(l) == pipeline_rank) stages.insert(outline_.layers[l].stage);
    return {stages.begin(), stages.end()};
  }
  // Pipeline ranks that a value reaches, in order.
  std::vector<int32_t> way_of(int32_t v) const {
    std::vector<std::pair<int32_t, int32_t>> firsts;
    for (int32_t rank = 0; rank < shape_.pipeline; ++rank)
      if (const auto stages = stages_with(v, rank); !stages.empty()) firsts.emplace_back(stages.front(), rank);
    std::ranges::sort(firsts);
    std::vector<int32_t> way;
    for (const auto& [stage, rank] : firsts) way.push_back(rank);
    return way;
  }
  std::set<int32_t> pipeline_ranks_with(int32_t param) const {
    std::set<int32_t> ranks;
    for (int32_t l = 0; l < static_cast<int32_t>(outline_.layers.size()); ++l)
      if (std::ranges::count(outline_.layers[l].params, param)) ranks.insert(pipeline_rank_of(l));
    return ranks;
  }

  // ---- one rank ----

  void begin(int32_t rank) {
    p_ = outline_;
    p_.rank = rank;
    p_.mesh.size = {1, shape_.data, shape_.pipeline, 1};
    here_ = rank / shape_.data;
    const int64_t count = 6 / shape_.data;
    for (int32_t m = 0; m < shape_.microbatches; ++m) {
      const bool is_empty = shape_.empty && m > 0 && m + 1 == shape_.microbatches;
      p_.microbatches.push_back(is_empty ? Microbatch{} : Microbatch{6 * m + count * (rank % shape_.data), count});
    }
    taken_.clear();
  }

  // The messages of a pipeline rank to each other one, in order.
  void list_sent(int32_t pipeline_rank) {
    begin(pipeline_rank * shape_.data);
    for (const PipelineAction& a : rows_[pipeline_rank]) emit(a);
    for (const gsel_instr& instr : p_.step)
      if (instr.kind == GSEL_INSTR_SEND) sent_[{pipeline_rank, instr.peer / shape_.data}].push_back(instr);
    lists_sent_[pipeline_rank] = true;
  }

  // Messages of a pipeline rank arrive in order: earlier ones are received with the one that is needed.
  void receive(int32_t v, int32_t m, int32_t sender, uint32_t flags) {
    if (!lists_sent_[here_]) return;
    const std::vector<gsel_instr>& sent = sent_[{sender, here_}];
    auto is_wanted = [&](const gsel_instr& s) { return s.value == v && s.microbatch == m && s.flags == flags; };
    const auto last = std::ranges::find_if(sent, is_wanted) - sent.begin();
    for (ptrdiff_t& at = taken_[sender]; at <= last; ++at)
      message(GSEL_INSTR_RECV, sent[at].value, sent[at].microbatch, sender, sent[at].flags);
  }

  Program one(int32_t rank) {
    begin(rank);
    deal_buckets();
    for (size_t b = 0; b < p_.buckets.size(); ++b)
      if (p_.buckets[b].shards_param()) bucket(GSEL_INSTR_ALLGATHER, b), bucket(GSEL_INSTR_WAIT, b);
    for (const PipelineAction& a : rows_[here_]) emit(a);
    end_step();
    return std::move(p_);
  }

  // Tied ones with those that the same pipeline ranks hold; alike on all of them.
  void deal_buckets() {
    std::map<std::pair<std::set<int32_t>, int32_t>, std::vector<int32_t>> dealt;
    for (int32_t param = 0; param < static_cast<int32_t>(p_.params.size()); ++param) {
      const std::set<int32_t> ranks = pipeline_ranks_with(param);
      if (p_.params[param].trainable && ranks.contains(here_)) dealt[{ranks, param % 2}].push_back(param);
    }
    constexpr uint32_t flags[] = {0, GSEL_BUCKET_SHARD_STATE, GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT,
                                  GSEL_BUCKET_SHARD_STATE | GSEL_BUCKET_SHARD_GRADIENT | GSEL_BUCKET_SHARD_PARAM};
    for (auto& [key, params] : dealt) {
      ProgramBucket b;
      b.params = std::move(params);
      b.flags = flags[static_cast<int>(shape_.sharding)];
      if (b.flags) b.axis = GSEL_AXIS_DATA;
      p_.buckets.push_back(std::move(b));
    }
  }

  gsel_instr& push(gsel_instr_kind kind) {
    p_.step.push_back(make_instr(kind));
    return p_.step.back();
  }
  void bucket(gsel_instr_kind kind, size_t b) {
    gsel_instr& instr = push(kind);
    instr.bucket = static_cast<int32_t>(b);
    if (find_instr_row(kind)->axis) instr.axis = GSEL_AXIS_DATA;
  }
  void layer(gsel_instr_kind kind, int32_t l, int32_t m) {
    gsel_instr& instr = push(kind);
    instr.layer = l;
    instr.microbatch = m;
  }
  void message(gsel_instr_kind kind, int32_t v, int32_t m, int32_t pipeline_rank, uint32_t flags) {
    gsel_instr& instr = push(kind);
    instr.value = v;
    instr.microbatch = m;
    instr.peer = p_.rank % shape_.data + shape_.data * pipeline_rank;
    instr.flags = flags;
  }

  void emit(const PipelineAction& a) {
    if (a.kind == 'F') return forward(a);
    if (a.kind != 'W') move_gradients(a, GSEL_INSTR_RECV);
    for (auto l = static_cast<int32_t>(p_.layers.size()) - 1; l >= 0; --l)
      if (p_.layers[l].stage == a.stage) backward(a, l);
    if (a.kind != 'W') move_gradients(a, GSEL_INSTR_SEND);
  }

  void forward(const PipelineAction& a) {
    for (int32_t v = 0; v < static_cast<int32_t>(p_.values.size()); ++v) {
      const std::vector<int32_t> stages = stages_with(v, here_), way = way_of(v);
      if (stages.empty() || stages.front() != a.stage) continue;
      if (p_.values[v].is_input) {
        gsel_instr& input = push(GSEL_INPUT);
        input.value = v;
        input.microbatch = a.microbatch;
      } else if (way.front() != here_) {
        receive(v, a.microbatch, *(std::ranges::find(way, here_) - 1), 0);
      }
    }
    for (int32_t l = 0; l < static_cast<int32_t>(p_.layers.size()); ++l)
      if (p_.layers[l].stage == a.stage) layer(GSEL_FORWARD, l, a.microbatch);
    for (int32_t v = 0; v < static_cast<int32_t>(p_.values.size()); ++v) {
      const std::vector<int32_t> stages = stages_with(v, here_), way = way_of(v);
      if (stages.empty() || stages.front() != a.stage || p_.values[v].is_input || way.back() == here_) continue;
      message(GSEL_INSTR_SEND, v, a.microbatch, *(std::ranges::find(way, here_) + 1), 0);
    }
  }

  // The gradient of a value is summed in a pipeline rank's first stage with it.
  void move_gradients(const PipelineAction& a, gsel_instr_kind kind) {
    for (int32_t v = 0; v < static_cast<int32_t>(p_.values.size()); ++v) {
      const std::vector<int32_t> stages = stages_with(v, here_), way = way_of(v);
      if (!p_.values[v].needs_gradient || stages.empty() || stages.front() != a.stage) continue;
      const auto at = std::ranges::find(way, here_);
      if (kind == GSEL_INSTR_RECV && at + 1 != way.end()) receive(v, a.microbatch, *(at + 1), GSEL_INSTR_GRADIENT);
      if (kind == GSEL_INSTR_SEND && at != way.begin()) message(kind, v, a.microbatch, *(at - 1), GSEL_INSTR_GRADIENT);
    }
  }

  void backward(const PipelineAction& a, int32_t l) {
    const ProgramLayer& of = p_.layers[l];
    if (!of.needs_backward_input && !of.needs_backward_weight) return;
    if (fused_[l]) {
      if (a.kind != 'W') layer(GSEL_BACKWARD, l, a.microbatch);
      return;
    }
    if (a.kind != 'W' && of.needs_backward_input) layer(GSEL_BACKWARD_INPUT, l, a.microbatch);
    if (a.kind != 'I' && of.needs_backward_weight) layer(GSEL_BACKWARD_WEIGHT, l, a.microbatch);
  }

  void end_step() {
    if (shape_.sharding == Sharding::none ? shape_.data > 1 : true)
      for (size_t b = 0; b < p_.buckets.size(); ++b)
        bucket(shape_.sharding == Sharding::none ? GSEL_INSTR_ALLREDUCE : GSEL_INSTR_REDUCE_SCATTER, b);
    for (gsel_axis axis : {GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA}) push(GSEL_INSTR_LOSS_ALLREDUCE).axis = axis;
    if (shape_.sharding != Sharding::none || shape_.data > 1)
      for (size_t b = 0; b < p_.buckets.size(); ++b) bucket(GSEL_INSTR_WAIT, b);
    for (size_t b = 0; b < p_.buckets.size(); ++b)
      if (p_.buckets[b].shards_param()) bucket(GSEL_INSTR_RELEASE, b);
    for (size_t b = 0; b < p_.buckets.size(); ++b)
      if (pipeline_ranks_with(p_.buckets[b].params.front()).size() > 1) bucket(GSEL_INSTR_ALLREDUCE_TIED, b);
    if (shape_.overflow)
      for (gsel_axis axis : {GSEL_AXIS_DATA, GSEL_AXIS_PIPELINE}) push(GSEL_INSTR_OVERFLOW).axis = axis;
    if (shape_.clip) push(GSEL_INSTR_NORM);
    for (gsel_instr& instr : p_.step)
      if (shape_.defers &&
          (instr.kind == GSEL_INSTR_NORM || (instr.kind == GSEL_INSTR_OVERFLOW && instr.axis == GSEL_AXIS_PIPELINE)))
        instr.flags |= GSEL_INSTR_OPTIMISTIC;
    const bool gathers = shape_.sharding == Sharding::state || shape_.sharding == Sharding::gradient;
    for (size_t b = 0; b < p_.buckets.size(); ++b) {
      bucket(GSEL_INSTR_STEP, b);
      if (gathers) bucket(GSEL_INSTR_ALLGATHER, b), bucket(GSEL_INSTR_WAIT, b);
    }
  }

  // Before the first instruction that is not of forward; place_post_validations does the rest.
  static void post_validate_late(Program& p) {
    const auto ends_forward = [](const gsel_instr& i) {
      return i.flags & GSEL_INSTR_GRADIENT || i.kind == GSEL_BACKWARD || i.kind == GSEL_BACKWARD_INPUT ||
             i.kind == GSEL_BACKWARD_WEIGHT || i.kind == GSEL_INSTR_ALLREDUCE || i.kind == GSEL_INSTR_REDUCE_SCATTER ||
             i.kind == GSEL_INSTR_LOSS_ALLREDUCE;
    };
    p.step.insert(std::ranges::find_if(p.step, ends_forward), make_instr(GSEL_INSTR_POST_VALIDATE));
  }

  const PipelineShape shape_;
  Draw& draw_;
  Program outline_, p_;
  std::vector<int32_t> cuts_;  // first layers of stages 1, 2, ..., and the end
  std::vector<bool> fused_;    // by layer
  std::vector<std::vector<PipelineAction>> rows_;
  std::map<std::pair<int32_t, int32_t>, std::vector<gsel_instr>> sent_;  // by sender and receiver
  std::map<int32_t, bool> lists_sent_;                                   // by pipeline rank: its messages are in sent_
  std::map<int32_t, ptrdiff_t> taken_;                                   // by sender
  int32_t here_ = 0;                                                     // the pipeline rank that is made
};

}  // namespace

std::vector<Program> make_pipeline(const PipelineShape& shape, Draw& draw) {
  return PipelineMaker(shape, draw).all();
}

}  // namespace gsel::test
