// See pipeline_lowering.h.
#include "support/pipeline_lowering.h"

#include <algorithm>
#include <set>

#include "program/stages.h"
#include "train/compile/base_program.h"

namespace made {

Mesh pipeline_mesh(int32_t data, int32_t pipeline) {
  Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = data;
  mesh.size[GSEL_AXIS_PIPELINE] = pipeline;
  return mesh;
}

std::vector<StageAction> one_forward_one_backward(int32_t pipeline_rank, int32_t pipeline, int32_t m) {
  std::vector<StageAction> all;
  const int32_t ahead = std::min(m, pipeline - pipeline_rank);
  for (int32_t f = 0; f < ahead; ++f) all.push_back({'F', pipeline_rank, f});
  for (int32_t b = 0; b < m; ++b) {
    all.push_back({'B', pipeline_rank, b});
    if (b + ahead < m) all.push_back({'F', pipeline_rank, b + ahead});
  }
  return all;
}

std::vector<StageAction> all_forward_all_backward(const Cut& cut, int32_t pipeline_rank, int32_t m) {
  std::vector<StageAction> all;
  const auto stages = static_cast<int32_t>(cut.rank_of_stage.size());
  auto add = [&](char kind, int32_t s) {
    for (int32_t i = 0; cut.rank_of_stage[s] == pipeline_rank && i < m; ++i) all.push_back({kind, s, i});
  };
  for (int32_t s = 0; s < stages; ++s) add('F', s);
  for (int32_t s = stages; s-- > 0;) add('I', s);
  for (int32_t s = stages; s-- > 0;) add('W', s);
  return all;
}

namespace {

class PipelineLowering {
 public:
  PipelineLowering(const Model& model, const Config& config, const Mesh& mesh, int32_t rank, const Cut& cut,
                   bool recompute)
      : model_(model), config_(config), program_(base_program(model, config, mesh, rank)), recomputes_(recompute) {
    program_.rank_of_stage = cut.rank_of_stage;
    for (size_t l = 0; l < program_.layers.size(); ++l)
      program_.layers[l].stage = static_cast<int32_t>(
          std::ranges::count_if(cut.first_layers, [&](int32_t first) { return static_cast<size_t>(first) <= l; }));
    program_.buckets = plain_buckets(program_);
    program_.step.clear();
    pipeline_rank_ = mesh.coordinate(rank, GSEL_AXIS_PIPELINE);
    along_ = mesh.group(rank, GSEL_AXIS_PIPELINE);
    for (size_t v = 0; v < program_.values.size(); ++v) chains_.push_back(chain(program_, static_cast<int32_t>(v)));
  }

  Program lower(const std::vector<StageAction>& actions) {
    for (const StageAction& a : actions) {
      if (a.kind == 'F') forward(a.stage, a.microbatch);
      if (a.kind == 'I' || a.kind == 'B') backward_input(a);
      if (a.kind == 'W') backward_weight(a);
    }
    end();
    return std::move(program_);
  }

 private:
  void emit(gsel_instr_kind kind, int32_t layer, int32_t value, int32_t mb, int32_t bucket, int32_t axis,
            int32_t peer = -1, uint32_t flags = 0) {
    program_.step.push_back({kind, layer, value, mb, bucket, axis, peer, flags});
  }
  void layer(gsel_instr_kind kind, int32_t l, int32_t mb) { emit(kind, l, -1, mb, -1, -1); }
  void message(gsel_instr_kind kind, int32_t v, int32_t mb, int32_t pipeline_rank, bool gradient) {
    emit(kind, -1, v, mb, -1, -1, along_[pipeline_rank], gradient ? GSEL_INSTR_GRADIENT : 0);
  }

  std::vector<int32_t> layers_of(int32_t stage) const {
    std::vector<int32_t> result;
    for (size_t l = 0; l < program_.layers.size(); ++l)
      if (program_.layers[l].stage == stage) result.push_back(static_cast<int32_t>(l));
    return result;
  }
  // Neighbour of this pipeline rank in the chain of a value; -1: none.
  int32_t neighbour(int32_t v, int by) const {
    const auto at = std::ranges::find(chains_[v], pipeline_rank_) - chains_[v].begin() + by;
    return at < 0 || at >= std::ssize(chains_[v]) ? -1 : chains_[v][at];
  }
  // Stage of this pipeline rank where a value is made, or else read first; -1: it is not here.
  int32_t home(int32_t v) const {
    int32_t first = -1;
    for (size_t l = 0; l < program_.layers.size(); ++l) {
      const ProgramLayer& layer = program_.layers[l];
      if (program_.rank_of_stage[layer.stage] != pipeline_rank_) continue;
      if (std::ranges::count(layer.outputs, v)) return layer.stage;
      if (first < 0 && std::ranges::count(layer.inputs, v)) first = layer.stage;
    }
    return first;
  }
  std::vector<int32_t> at_home(int32_t stage) const {
    std::vector<int32_t> result;
    for (size_t v = 0; v < program_.values.size(); ++v)
      if (home(static_cast<int32_t>(v)) == stage) result.push_back(static_cast<int32_t>(v));
    return result;
  }

  void forward(int32_t stage, int32_t mb) {
    for (int32_t v : at_home(stage)) {
      if (program_.values[v].is_input)
        emit(GSEL_INPUT, -1, v, mb, -1, -1);
      else if (neighbour(v, -1) >= 0)
        message(GSEL_INSTR_RECV, v, mb, neighbour(v, -1), false);
    }
    for (int32_t l : layers_of(stage)) layer(GSEL_FORWARD, l, mb);
    for (int32_t v : at_home(stage))
      if (!program_.values[v].is_input && neighbour(v, 1) >= 0) message(GSEL_INSTR_SEND, v, mb, neighbour(v, 1), false);
  }

  // Whether pipeline ranks from this one's neighbour on, or this one and those after it, add to a value's gradient.
  bool gradient_comes(int32_t v, bool from_behind) const {
    if (program_.values[v].is_input || !program_.values[v].needs_gradient) return false;
    const auto own = std::ranges::find(chains_[v], pipeline_rank_);
    return std::any_of(from_behind ? own + 1 : own, chains_[v].end(), [&](int32_t pipeline_rank) {
      return std::ranges::any_of(program_.layers, [&](const ProgramLayer& layer) {
        return program_.rank_of_stage[layer.stage] == pipeline_rank && layer.needs_backward_input &&
               std::ranges::count(layer.inputs, v);
      });
    });
  }

  void backward_input(const StageAction& a) {
    for (int32_t v : at_home(a.stage))
      if (gradient_comes(v, true)) message(GSEL_INSTR_RECV, v, a.microbatch, neighbour(v, 1), true);
    std::vector<int32_t> layers = layers_of(a.stage);
    std::ranges::reverse(layers);
    for (int32_t l : layers) {
      const Layer& described = model_.layers()[l];
      if (!described.needs_backward()) continue;
      if (recomputes_ && described.recomputable()) layer(GSEL_INSTR_RECOMPUTE, l, a.microbatch);
      if (described.backward_in_one()) {
        layer(GSEL_BACKWARD, l, a.microbatch);
        continue;
      }
      if (described.needs_backward_input) layer(GSEL_BACKWARD_INPUT, l, a.microbatch);
      if (a.kind == 'B' && described.needs_backward_weight) layer(GSEL_BACKWARD_WEIGHT, l, a.microbatch);
    }
    for (int32_t v : at_home(a.stage))
      if (gradient_comes(v, false) && neighbour(v, -1) >= 0)
        message(GSEL_INSTR_SEND, v, a.microbatch, neighbour(v, -1), true);
  }

  void backward_weight(const StageAction& a) {
    std::vector<int32_t> layers = layers_of(a.stage);
    std::ranges::reverse(layers);
    for (int32_t l : layers) {
      const Layer& described = model_.layers()[l];
      if (described.needs_backward_weight && !described.backward_in_one()) layer(GSEL_BACKWARD_WEIGHT, l, a.microbatch);
    }
  }

  void end() {
    const auto buckets = static_cast<int32_t>(program_.buckets.size());
    const bool data = program_.mesh.size[GSEL_AXIS_DATA] > 1;
    for (int32_t b = 0; data && b < buckets; ++b) emit(GSEL_INSTR_ALLREDUCE, -1, -1, -1, b, GSEL_AXIS_DATA);
    for (int32_t b = 0; data && b < buckets; ++b) emit(GSEL_INSTR_WAIT, -1, -1, -1, b, -1);
    for (gsel_axis axis : {GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA}) emit(GSEL_INSTR_LOSS_ALLREDUCE, -1, -1, -1, -1, axis);
    for (int32_t b = 0; b < buckets; ++b)
      if (sums_tied(program_, b)) emit(GSEL_INSTR_ALLREDUCE_TIED, -1, -1, -1, b, -1);
    if (config_.train.clip_norm > 0) emit(GSEL_INSTR_NORM, -1, -1, -1, -1, -1);
    for (int32_t b = 0; b < buckets; ++b) emit(GSEL_INSTR_STEP, -1, -1, -1, b, -1);
  }

  const Model& model_;
  const Config& config_;
  Program program_;
  int32_t pipeline_rank_ = 0;
  bool recomputes_ = false;
  std::vector<int32_t> along_;
  std::vector<std::vector<int32_t>> chains_;
};

}  // namespace

Program lower_pipeline(const Model& model, const Config& config, const Mesh& mesh, int32_t rank, const Cut& cut,
                       const std::vector<StageAction>& actions, bool recompute) {
  return PipelineLowering(model, config, mesh, rank, cut, recompute).lower(actions);
}

}  // namespace made
