// train/compile/base_program.cc: see base_program.h.
#include "train/compile/base_program.h"

#include <algorithm>

#include "base/config.h"
#include "base/shard.h"
#include "base/text.h"
#include "base/types.h"
#include "model/views.h"
#include "program/stages.h"
#include "train/compile/settings.h"

namespace gsel {
namespace {

constexpr int64_t kMaxMicrobatches = 1 << 16;

gsel_instr layer_instr(gsel_instr_kind kind, int32_t layer, int32_t microbatch) {
  gsel_instr instr = make_instr(kind);
  instr.layer = layer;
  instr.microbatch = microbatch;
  return instr;
}

[[noreturn]] void refuse_key(const Config& config, const char* key, const std::string& why) {
  const Place place = config.place_of(key);
  throw Error(GSEL_ERR_CONFIG, place_prefix(place) + why).at(place);
}

// The planner balances stages for micro-batches of equal size: equal on all ranks, or by the ranks' weights.
void check_even(const Config& config, int32_t ranks) {
  const int64_t n = config.train.microbatches, whole = ranks * n, batch = config.train.batch;
  if (batch % whole == 0) return;
  const std::string smaller = batch > whole ? fmt::format("{} or ", batch / whole * whole) : "";
  refuse_key(config, "train.microbatches",
             fmt::format("train.batch = {} are not {} equal micro-batches, train.microbatches = {} for each of {} of "
                         "the data axis, as a pipeline needs them; set train.batch = {}{}",
                         with_noun(batch, "sample"), whole, n, with_noun(ranks, "rank"), smaller,
                         (batch / whole + 1) * whole));
}
void check_even_shards(const Config& config, const std::vector<int64_t>& bounds) {
  const int64_t n = config.train.microbatches;
  for (size_t coordinate = 0; coordinate + 1 < bounds.size(); ++coordinate) {
    const int64_t shard = bounds[coordinate + 1] - bounds[coordinate];
    if (shard > 0 && shard % n == 0) continue;
    refuse_key(config, "strategy.data.weights",
               fmt::format("strategy.data.weights = {} give coordinate {} of the data axis {} of train.batch = {}, "
                           "which are not {} equal micro-batches (train.microbatches), as a pipeline needs them",
                           *config.get("strategy.data.weights"), coordinate, shard,
                           with_noun(config.train.batch, "sample"), n));
  }
}

std::vector<Microbatch> cut_in(const gsel_range& shard, int64_t n) {
  std::vector<Microbatch> result;
  for (int64_t i = 0; i < n; ++i) {
    const gsel_range range = shard_range(shard.end - shard.begin, n, i);
    result.push_back({shard.begin + range.begin, range.end - range.begin});
  }
  return result;
}

std::vector<Microbatch> cut_by_size(const gsel_range& shard, int64_t n, int64_t size) {
  std::vector<Microbatch> result;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = std::min(shard.begin + i * size, shard.end);
    result.push_back({first, std::min(size, shard.end - first)});
  }
  return result;
}

std::vector<ProgramPhase> outline_phases(const std::vector<gsel_phase>& phases) {
  std::vector<ProgramPhase> result;
  for (const gsel_phase& p : phases) {
    if (p.axis < 0) continue;  // not divided
    const auto bytes = static_cast<int64_t>(dtype_bytes(p.dtype));
    result.push_back(
        {p.axis, p.elems * bytes, p.elems_per_sample * bytes, p.dtype, (p.flags & GSEL_PHASE_RING_SHIFT) != 0});
  }
  return result;
}

// Without bits beyond the last parameter.
uint64_t unread_params(const Layer& layer) {
  const size_t n = layer.params.size();
  return n < 64 ? layer.backward_unread_params & ((uint64_t{1} << n) - 1) : layer.backward_unread_params;
}

void outline_model(const Model& model, const Config& config, Program& program) {
  for (const Param& p : model.params())
    program.params.push_back({p.name, p.n_elems, kept_dtype(p, config), p.trainable(), p.dims.empty() ? 1 : p.dims[0],
                              p.shard, p.partial_gradient});
  for (const Value& v : model.values())
    program.values.push_back({v.name, static_cast<int64_t>(value_bytes(v, 1)), v.is_input(), v.is_scalar(),
                              v.needs_gradient, v.placement, v.shard, v.is_scalar() ? GSEL_F32 : v.dtype});
  for (const Layer& l : model.layers())
    program.layers.push_back({l.name, l.inputs, l.outputs, l.params, l.is_loss(), l.needs_backward_input,
                              l.needs_backward_weight, unread_params(l), outline_phases(l.forward_phases),
                              outline_phases(l.backward_phases), 0, l.redistributes, l.divided,
                              (l.flags & GSEL_LAYER_WEIGHT_READS_PARAMS) != 0});
}

void emit_backward(const Model& model, int32_t l, int32_t microbatch, std::vector<gsel_instr>& step) {
  const Layer& layer = model.layers()[l];
  if (!layer.needs_backward()) return;
  if (layer.backward_in_one()) {
    step.push_back(layer_instr(GSEL_BACKWARD, l, microbatch));
    return;
  }
  if (layer.needs_backward_input) step.push_back(layer_instr(GSEL_BACKWARD_INPUT, l, microbatch));
  if (layer.needs_backward_weight) step.push_back(layer_instr(GSEL_BACKWARD_WEIGHT, l, microbatch));
}

// recomputed: result of recomputed_before.
void emit_microbatch(const Model& model, const std::vector<int32_t>& recomputed, int32_t microbatch,
                     std::vector<gsel_instr>& step) {
  for (size_t v = 0; v < model.values().size(); ++v) {
    if (!model.values()[v].is_input()) continue;
    gsel_instr input = make_instr(GSEL_INPUT);
    input.value = static_cast<int32_t>(v);
    input.microbatch = microbatch;
    step.push_back(input);
  }
  const auto n_layers = static_cast<int32_t>(model.layers().size());
  for (int32_t l = 0; l < n_layers; ++l) step.push_back(layer_instr(GSEL_FORWARD, l, microbatch));
  for (int32_t l = n_layers - 1; l >= 0; --l) {
    for (int32_t r = recomputed[l]; r >= 0 && r <= l; ++r)
      step.push_back(layer_instr(GSEL_INSTR_RECOMPUTE, r, microbatch));
    emit_backward(model, l, microbatch, step);
  }
}

// One instruction for each axis that divides what is summed. Losses are on the last pipeline rank, and whole on each
// rank of the sharing axis unless that axis divides positions.
void emit_over_axes(gsel_instr_kind kind, bool over_sharing, Program& program) {
  for (gsel_axis axis : {program.mesh.sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA}) {
    if (shares_layers(axis) && !over_sharing) continue;
    if (axis != GSEL_AXIS_DATA && program.mesh.size[axis] == 1) continue;
    gsel_instr instr = make_instr(kind);
    instr.axis = axis;
    program.step.push_back(instr);
  }
}

void emit_end(const Model& model, const Config& config, Program& program) {
  if (model.loss_layer() >= 0) emit_over_axes(GSEL_INSTR_LOSS_ALLREDUCE, has_partial_loss(program), program);
  if (looks_for_overflow(config, model)) emit_over_axes(GSEL_INSTR_OVERFLOW, true, program);
  if (config.train.clip_norm > 0 || config.train.gradient_norm == "always" || config.train.elastic)
    program.step.push_back(make_instr(GSEL_INSTR_NORM));
}

int64_t largest_local_batch(const std::vector<int64_t>& bounds) {
  int64_t most = 1;
  for (size_t i = 1; i < bounds.size(); ++i) most = std::max(most, bounds[i] - bounds[i - 1]);
  return most;
}

// The samples of one replica. most: the largest shard of any replica; bounds: of all replicas, if they have weights.
std::vector<Microbatch> cut_shard(const Config& config, const Mesh& mesh, const gsel_range& shard, int64_t most,
                                  const std::vector<int64_t>& bounds) {
  if (config.train.microbatches > kMaxMicrobatches)
    refuse_key(
        config, "train.microbatches",
        fmt::format("train.microbatches = {} is more than {}; use fewer", config.train.microbatches, kMaxMicrobatches));
  if (config.train.microbatches > config.train.batch)
    refuse_key(
        config, "train.microbatches",
        fmt::format("train.microbatches = {} are more than the {} of train.batch, on any number of ranks; use {} "
                    "or fewer",
                    config.train.microbatches, with_noun(config.train.batch, "sample"), config.train.batch));
  if (config.train.microbatches > 0) {
    if (mesh.size[GSEL_AXIS_PIPELINE] > 1)
      config.get("strategy.data.weights") ? check_even_shards(config, bounds)
                                          : check_even(config, mesh.size[GSEL_AXIS_DATA]);
    return cut_in(shard, config.train.microbatches);
  }
  const int64_t size = config.train.microbatch ? std::min(config.train.microbatch, most) : most;
  const int64_t n = most / size + (most % size != 0);
  if (n > kMaxMicrobatches)
    refuse_key(config, "train.microbatch",
               fmt::format("train.batch = {} in micro-batches of train.microbatch = {} gives more than {} per "
                           "rank; use larger ones",
                           config.train.batch, with_noun(size, "sample"), kMaxMicrobatches));
  return cut_by_size(shard, n, size);
}

}  // namespace

std::vector<int64_t> sample_bounds(const Config& config, int32_t ranks) {
  return shard_items(config.train.batch, axis_weights(config, GSEL_AXIS_DATA, ranks));
}

// Without weights the time does not grow with the number of ranks. All ranks call this to compile their programs.
int64_t largest_local_batch(const Config& config, int32_t ranks) {
  if (config.get("strategy.data.weights")) return largest_local_batch(sample_bounds(config, ranks));
  return std::max<int64_t>(shard_range(config.train.batch, ranks, 0).end, 1);
}

std::vector<Microbatch> microbatches_of(const Config& config, const Mesh& mesh, int32_t rank) {
  const int32_t ranks = mesh.size[GSEL_AXIS_DATA], replica = mesh.coordinate(rank, GSEL_AXIS_DATA);
  const int64_t most = largest_local_batch(config, ranks);
  if (!config.get("strategy.data.weights"))
    return cut_shard(config, mesh, shard_range(config.train.batch, ranks, replica), most, {});
  const std::vector<int64_t> bounds = sample_bounds(config, ranks);
  return cut_shard(config, mesh, {bounds[replica], bounds[replica + 1]}, most, bounds);
}

std::vector<std::vector<Microbatch>> microbatches_of_replicas(const Config& config, const Mesh& mesh) {
  const std::vector<int64_t> bounds = sample_bounds(config, mesh.size[GSEL_AXIS_DATA]);
  const int64_t most = largest_local_batch(bounds);
  std::vector<std::vector<Microbatch>> all;
  for (int32_t replica = 0; replica < mesh.size[GSEL_AXIS_DATA]; ++replica)
    all.push_back(cut_shard(config, mesh, {bounds[replica], bounds[replica + 1]}, most, bounds));
  return all;
}

Program base_program(const Model& model, const Config& config, const Mesh& mesh, int32_t rank) {
  Program program;
  program.rank = rank;
  program.mesh = mesh;
  program.rank_of_stage = {mesh.coordinate(rank, GSEL_AXIS_PIPELINE)};
  outline_model(model, config, program);
  program.microbatches = microbatches_of(config, mesh, rank);
  const std::vector<int32_t> recomputed = recomputed_before(model, config);
  for (size_t m = 0; m < program.microbatches.size(); ++m) {
    emit_microbatch(model, recomputed, static_cast<int32_t>(m), program.step);
    if (m == 0) program.step.reserve(program.step.size() * (program.microbatches.size() + 1));  // equally many each
  }
  emit_end(model, config, program);
  make_buckets(program);
  return program;
}

void make_buckets(Program& program) {
  program.buckets = plain_buckets(program);
  std::erase_if(program.step, [](const gsel_instr& instr) { return task_of(instr.kind) == InstrTask::step; });
  for (size_t b = 0; b < program.buckets.size(); ++b) {
    gsel_instr step = make_instr(GSEL_INSTR_STEP);
    step.bucket = static_cast<int32_t>(b);
    program.step.push_back(step);
  }
}

}  // namespace gsel
