// train/execute/non_finite.cc: the order of origins (state.h), and the search for non-finite numbers. Each rank
// checks the gradients that its backwards produce, before a reduction spreads them over all ranks. Once it has found
// one, or a non-finite loss, it checks the values that backwards read in that micro-batch, to see whether forward made
// it. OVERFLOW or NORM tells all ranks that a step has one; then they agree on its first origin.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/log.h"
#include "base/types.h"
#include "model/views.h"
#include "program/stages.h"
#include "train/execute/instructions.h"

namespace gsel {
namespace {

// Sizes of the described model. On a sharing axis the model has redistributions between the described layers; their
// values come after the described ones.
struct Sizes {
  int64_t layers = 0, values = 0, params = 0;
  explicit Sizes(const Model& model) : params(std::ssize(model.params())) {
    for (const Layer& layer : model.layers()) layers = std::max<int64_t>(layers, layer.origin + 1);
    for (const Value& v : model.values())
      values += v.producer < 0 || !model.layers()[static_cast<size_t>(v.producer)].redistributes;
  }
  int64_t of_forward() const { return (layers + 1) * values; }  // inputs first
  int64_t of_backward() const { return params + 1; }  // per layer: the gradients of its inputs, then of its parameters
  int64_t of_microbatch() const { return of_forward() + layers * of_backward(); }
};

}  // namespace

double NonFiniteOrigin::order(const Model& model, int32_t n_ranks) const {
  if (!is_known()) return std::numeric_limits<double>::infinity();
  const Sizes n(model);
  const int64_t place = value >= 0 ? (layer + 1) * n.values + value
                                   : n.of_forward() + (n.layers - 1 - layer) * n.of_backward() + param + 1;
  return static_cast<double>((microbatch * n.of_microbatch() + place) * n_ranks + rank);
}

NonFiniteOrigin NonFiniteOrigin::of_order(double order, const Model& model, int32_t n_ranks) {
  if (!std::isfinite(order)) return {};
  const Sizes n(model);
  auto number = static_cast<int64_t>(order);
  NonFiniteOrigin origin;
  origin.rank = static_cast<int32_t>(number % n_ranks);
  number /= n_ranks;
  origin.microbatch = static_cast<int32_t>(number / n.of_microbatch());
  int64_t place = number % n.of_microbatch();
  if (place < n.of_forward()) {
    origin.value = static_cast<int32_t>(place % n.values);
    origin.layer = static_cast<int32_t>(place / n.values) - 1;
    return origin;
  }
  place -= n.of_forward();
  origin.param = static_cast<int32_t>(place % n.of_backward()) - 1;
  origin.layer = static_cast<int32_t>(n.layers - 1 - place / n.of_backward());
  return origin;
}

}  // namespace gsel

namespace gsel::execute {
namespace {

// A collective of all ranks, when all know that the step has a non-finite number.
void agree_on_non_finite(State& s, NonFiniteOrigin origin) {
  double first = origin.order(s.model, s.mesh.world_size());
  for (gsel_axis axis : {s.sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA})
    allreduce_numbers(s, 0, axis, {&first, 1}, GSEL_MIN);
  s.non_finite_origin = NonFiniteOrigin::of_order(first, s.model, s.mesh.world_size());
}

std::string text_of(const Model& model, const NonFiniteOrigin& origin, int64_t step) {
  if (!origin.is_known())
    return fmt::format("a sum of gradients is not finite in step {}, though what each rank has produced is", step);
  std::string layer;
  for (const Layer& candidate : model.layers())
    if (candidate.origin == origin.layer) layer = candidate.name;
  const std::string where = fmt::format("on rank {}, micro-batch {}", origin.rank, origin.microbatch);
  if (origin.value < 0 && origin.param < 0)
    return fmt::format(
        "the backward of layer \"{}\" gave a gradient for its inputs that is not finite in step {}, first {}", layer,
        step, where);
  if (origin.value < 0)
    return fmt::format(
        "the gradient of parameter \"{}\" is not finite in step {}, first on rank {}, in the backward of layer \"{}\", "
        "micro-batch {}",
        model.params()[origin.param].name, step, origin.rank, layer, origin.microbatch);
  const std::string& value = model.values()[origin.value].name;
  if (origin.layer < 0)
    return fmt::format("input \"{}\" is not finite in step {}, {}, and so are gradients", value, step, where);
  return fmt::format(
      "value \"{}\" is not finite in step {}, made by the forward of layer \"{}\" {}, and so are gradients", value,
      step, layer, where);
}

// While a dynamic loss scale may still fall, an overflow is no error: it is how the scale is found.
void judge_non_finite(const Fixed& fixed, const Progress& progress, int64_t step) {
  const std::string what = text_of(fixed.model, progress.non_finite_origin, step);
  const bool searches = progress.loss_scale.may_fall();
  if (fixed.non_finite == NonFinite::error && !searches)
    throw Error(GSEL_ERR_CALLBACK, what + "; train.non_finite = \"skip\" would go on without this step")
        .about_rank(progress.non_finite_origin.rank);
  if (fixed.rank == 0)
    log(searches ? GSEL_LOG_INFO : GSEL_LOG_WARN, "train", "{}; the step is skipped on all ranks", what);
}

// ---- what this rank has seen --------------------------------------------------------------------------------------

// Keeps the earlier origin.
void note_origin(const Fixed& fixed, Run& run, const NonFiniteOrigin& origin) {
  const int32_t n = fixed.mesh.world_size();
  if (origin.order(fixed.model, n) < run.origin.order(fixed.model, n)) run.origin = origin;
}

bool is_finite(const Fixed& fixed, const void* data, gsel_dtype dtype, uint64_t elems) {
  constexpr uint64_t kChunk = 16384;
  if (dtype == GSEL_F32 || dtype == GSEL_F64) return std::isfinite(fixed.sum_squares(data, dtype, elems));
  const Memory room(fixed.device, kChunk * sizeof(float));
  for (uint64_t done = 0; done < elems; done += kChunk) {
    const uint64_t count = std::min(kChunk, elems - done);
    fixed.device->enqueue(&gsel_device_v1::cast, room.data(), gsel_dtype{GSEL_F32},
                          static_cast<const void*>(static_cast<const char*>(data) + done * dtype_bytes(dtype)), dtype,
                          count);
    if (!std::isfinite(fixed.sum_squares(room.data(), GSEL_F32, count))) return false;
  }
  return true;
}

// A value or its gradient. True if it has no memory here or no floating-point elements.
bool is_finite_value(const Fixed& fixed, const Microbatch& mb, const void* data, int32_t v) {
  const Value& value = fixed.model.values()[v];
  if (!data || value.is_scalar() || value.dtype < GSEL_F16) return true;
  return is_finite(fixed, data, value.dtype, static_cast<uint64_t>(value_elems(value, mb.count)));
}

// The loss layer if only that reads the value. -1: other layers contributed to its gradient, or passed on a gradient.
int32_t is_read_by_loss_alone(const Model& model, int32_t v) {
  int32_t loss = -1;
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const Layer& layer = model.layers()[i];
    if (std::ranges::find(layer.inputs, v) == layer.inputs.end()) continue;
    const int32_t reader = layer.redistributes ? is_read_by_loss_alone(model, layer.outputs.front())
                           : layer.is_loss()   ? static_cast<int32_t>(i)
                                               : -1;
    if (reader < 0) return -1;
    loss = reader;
  }
  return loss;
}

// The rank that has the layer and this rank's other coordinates.
int32_t rank_of_layer(const Fixed& fixed, const Program& program, int32_t layer) {
  const int32_t away = pipeline_rank_of_layer(program, layer) - fixed.axis_coordinate(GSEL_AXIS_PIPELINE);
  return fixed.rank + away * fixed.mesh.stride(GSEL_AXIS_PIPELINE);
}

NonFiniteOrigin origin_in(const Fixed& fixed, const Run& run, int32_t layer, int32_t param, int32_t mb) {
  return {rank_of_layer(fixed, run.program, layer), fixed.model.layers()[static_cast<size_t>(layer)].origin, param,
          run.microbatch_number[mb], -1};
}

// The backward of the loss gets no gradient, so it made a non-finite gradient that the next backward received.
void check_gradients(State& s, const gsel_instr& instr, const Layer& layer) {
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!s.model.params()[p].trainable() || !s.lent.produced[i]) continue;
    const size_t squares =
        s.numbers.sum_squares(s.params.gradient(p), GSEL_F32, static_cast<uint64_t>(s.model.params()[p].n_elems));
    if (!s.numbers.are_known_at_once()) s.run->pending_checks.push_back({instr.layer, p, instr.microbatch, squares});
    if (!s.numbers.are_known_at_once() || std::isfinite(s.numbers[squares])) continue;
    s.run->origin = origin_in(s, *s.run, instr.layer, p, instr.microbatch);
    for (size_t k = 0; k < layer.outputs.size(); ++k)
      if (const int32_t v = layer.outputs[k], reader = is_read_by_loss_alone(s.model, v);
          reader >= 0 &&
          !is_finite_value(s, s.program().microbatches[instr.microbatch], s.at(s.operands().outputs[k].gradient), v))
        note_origin(s, *s.run, origin_in(s, *s.run, reader, -1, instr.microbatch));
    return;
  }
}

// Follows redistributions back to the described value.
int32_t described_value(const Model& model, int32_t v) {
  for (;;) {
    const int32_t producer = model.values()[v].producer;
    if (producer < 0 || !model.layers()[static_cast<size_t>(producer)].redistributes) return v;
    v = model.layers()[static_cast<size_t>(producer)].inputs.front();
  }
}

// Whether the value of a whole micro-batch was gathered from shards; the ranks that made the shards report it.
bool was_gathered(const Program& program, const Value& value, int32_t mb) {
  auto is_part = [mb](const Microbatch& part) { return part.whole == mb; };
  return value.producer >= 0 && std::ranges::any_of(program.microbatches, is_part);
}

void check_value(const Fixed& fixed, Run& run, const void* data, int32_t v, int32_t mb) {
  const Value& value = fixed.model.values()[v];
  if (was_gathered(run.program, value, mb) || is_finite_value(fixed, run.program.microbatches[mb], data, v)) return;
  const int32_t id = described_value(fixed.model, v), producer = fixed.model.values()[id].producer;
  NonFiniteOrigin origin{fixed.rank, -1, -1, run.microbatch_number[mb], id};
  if (producer >= 0) {
    origin.layer = fixed.model.layers()[static_cast<size_t>(producer)].origin;
    origin.rank = rank_of_layer(fixed, run.program, producer);
  }
  note_origin(fixed, run, origin);
}

}  // namespace

// After a backward. Checks gradients until one is found in this step; from then on the values of its micro-batch.
void check_for_non_finite(State& s, const gsel_instr& instr, const Layer& layer) {
  if (s.non_finite == NonFinite::off) return;
  if (!s.run->origin.is_known() && instr_row(instr.kind).weight_half) check_gradients(s, instr, layer);
  if (!s.run->origin.is_known() || s.run->origin.microbatch != s.run->microbatch_number[instr.microbatch]) return;
  const ArenaOperands& operands = s.operands();
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    check_value(s, *s.run, s.at(operands.inputs[i].value), layer.inputs[i], instr.microbatch);
  for (size_t i = 0; i < layer.outputs.size(); ++i)
    check_value(s, *s.run, s.at(operands.outputs[i].value), layer.outputs[i], instr.microbatch);
}

// The first gradient in the order of the step. Values that are read before it are gone by now.
void finish_pending_checks(State& s) {
  if (s.run->pending_checks.empty()) return;
  const auto first = std::ranges::find_if(
      s.run->pending_checks, [&](const PendingCheck& look) { return !std::isfinite(s.numbers[look.squares]); });
  if (first != s.run->pending_checks.end())
    note_origin(s, *s.run, origin_in(s, *s.run, first->layer, first->param, first->microbatch));
  s.run->pending_checks.clear();
}

void check_loss(const Fixed& fixed, Run& run, int32_t microbatch) {
  const Layer& layer = fixed.model.layers()[fixed.model.loss_layer()];
  const int32_t number = run.microbatch_number[microbatch];
  for (size_t i = 0; i < 2; ++i)
    if (!std::isfinite(run.losses[microbatch][i]))
      note_origin(fixed, run, {fixed.rank, layer.origin, -1, number, layer.outputs[i]});
  const double weight = run.losses[microbatch][1];
  if (run.bad_weight_microbatch < 0 && !(weight >= 0 && std::isfinite(weight))) run.bad_weight_microbatch = number;
}

void report_non_finite(const Progress& progress, gsel_step_report& report) {
  report.non_finite_rank = progress.non_finite_origin.rank;
  report.non_finite_layer = progress.non_finite_origin.layer;
  report.non_finite_param = progress.non_finite_origin.param;
  report.non_finite_microbatch = progress.non_finite_origin.microbatch;
  report.non_finite_value = progress.non_finite_origin.value;
}

void end_update(State& s, bool overflowed, int64_t step, const NonFiniteOrigin& origin) {
  s.non_finite_origin = {};
  if (overflowed) {
    agree_on_non_finite(s, origin);
    judge_non_finite(s, s, step);
  }
  s.loss_scale.update(overflowed);
  s.updates += !overflowed;
  for (BucketState& bucket : s.buckets)
    if (bucket.compressor) bucket.compressor->end_step(!overflowed);
}

}  // namespace gsel::execute
