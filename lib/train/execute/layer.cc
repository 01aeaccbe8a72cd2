// train/execute/layer.cc: what the embedder is asked for. INPUT fills a value. FORWARD, RECOMPUTE and the three kinds
// of backward are a layer's callback. A layer with n phases is handed out n + 1 times. A phase is what the ranks of an
// axis do together between two of these calls: a buffer is reduced in place, or shifted along the ring, alternating
// between two buffers. A micro-batch without samples calls no callback and takes part in the reductions with the
// operation's neutral element. The first contribution to a gradient is written in place, later ones are added:
// gradients of values by the library, from scratch memory, gradients of parameters by the callback.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "base/text.h"
#include "base/types.h"
#include "model/views.h"
#include "program/words/words.h"
#include "train/execute/graphs.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

using Access = Lender::Access;

bool is_forward(gsel_instr_kind kind) {
  return task_of(kind) == InstrTask::forward;
}

gsel_tensor value_view(const State& s, int32_t v, int32_t mb, void* data) {
  return value_tensor(s.model.values()[v], s.program().microbatches[mb].count, data);
}

void list_samples(Lent& lent, const Run& run, const Microbatch& mb) {
  lent.sample_ids.resize(mb.count);
  std::iota(lent.sample_ids.begin(), lent.sample_ids.end(), run.first_sample + mb.first);
}

void hand_out(Lent& lent, int32_t kind) {
  lent.message[0] = '\0';
  lent.work_kind = kind;
  lent.handed_out = true;
  ++lent.ticket;
}

}  // namespace

// ---- INPUT ---------------------------------------------------------------------------------------------------------

bool hand_out_input(State& s, const gsel_instr& instr) {
  if (s.is_empty(instr.microbatch) || s.run->is_without_callbacks()) return false;
  const Microbatch& mb = s.program().microbatches[instr.microbatch];
  list_samples(s.lent, *s.run, mb);
  const gsel_tensor dst = value_view(s, instr.value, instr.microbatch, s.at(s.operands().inputs[0].value));
  s.lent.request = {};
  s.lent.request.struct_size = sizeof s.lent.request;
  s.lent.request.value = instr.value;
  s.lent.request.microbatch = s.run->microbatch_number[instr.microbatch];
  s.lent.request.n_samples = mb.count;
  s.lent.request.sample_ids = s.lent.sample_ids.data();
  s.lent.request.dst = s.lent.lender.lend(dst, Lender::Access::write);
  s.lent.request.message = s.lent.message.data();
  s.lent.request.message_capacity = s.lent.message.size();
  s.lent.request.stream = s.device->native_compute();
  hand_out(s.lent, GSEL_INPUT);
  return true;
}

void take_back_input(State& s, const gsel_instr& instr, bool no_samples) {
  s.lent.lender.take_back();
  if (!no_samples) return;
  if (s.axis_size(GSEL_AXIS_PIPELINE) > 1)
    throw Error(
        GSEL_ERR_CALLBACK,
        fmt::format("input \"{}\" had no samples {}, micro-batch {}; other stages of this pipeline of {} "
                    "would wait for them, so every batch must be complete",
                    s.model.values()[instr.value].name, s.where_in_step(), s.run->microbatch_number[instr.microbatch],
                    with_noun(s.axis_size(GSEL_AXIS_PIPELINE), "rank")))
        .about_rank(s.rank);
  for (const gsel_instr& other : s.program().step)
    if (instr_row(other.kind).is_scatter())
      throw Error(GSEL_ERR_CALLBACK,
                  fmt::format("input \"{}\" had no samples {}, micro-batch {}; this strategy divides the batch of one "
                              "rank among all (\"{}\"), so every batch must be complete",
                              s.model.values()[instr.value].name, s.where_in_step(),
                              s.run->microbatch_number[instr.microbatch], to_text(s.program(), other)))
          .about_rank(s.rank);
  s.run->empty[instr.microbatch] = true;
  s.run->losses[instr.microbatch] = {};
}

void finish_contribution(State& s, const ArenaOperands::OfValue& operand, int32_t v, int32_t mb) {
  const void* scratch = s.at(operand.scratch);
  if (!scratch) return;
  const Value& value = s.model.values()[v];
  s.add(s.at(operand.gradient), scratch, value.dtype,
        static_cast<uint64_t>(value_elems(value, s.program().microbatches[mb].count)));
}

namespace {

// ---- phases -------------------------------------------------------------------------------------------------------

const std::vector<gsel_phase> kNone;

int32_t buffer_of(const Layer& layer, gsel_instr_kind kind, size_t k) {
  return (is_forward(kind) ? layer.forward_buffer_of : layer.backward_buffer_of)[k];
}

// In an inference, the data axis does not take part: one replica has all samples.
int32_t ranks_of(const State& s, const gsel_phase& phase) {
  return s.run->is_one_replica() && phase.axis != s.sharing_axis() ? 1 : s.axis_size(phase.axis);
}

const std::vector<gsel_phase>& phases_of(const Layer& layer, gsel_instr_kind kind) {
  if (is_forward(kind)) return layer.forward_phases;
  return instr_row(kind).input_half ? layer.backward_phases : kNone;
}

const std::vector<gsel_phase>& buffers_of(const Layer& layer, gsel_instr_kind kind) {
  if (is_forward(kind)) return layer.forward_buffers;
  return instr_row(kind).input_half ? layer.backward_buffers : kNone;
}

// The i-th buffer after `done` phases.
void* phase_buffer(const State& s, const gsel_instr& instr, int32_t i, size_t done) {
  const std::vector<gsel_phase>& phases = phases_of(s.layer_of(instr), instr.kind);
  size_t shifts = 0;
  for (size_t k = 0; k < done; ++k) shifts += ring_shift(phases[k]) && buffer_of(s.layer_of(instr), instr.kind, k) == i;
  const ArenaOperands::OfPhase& operand = s.operands().phases[i];
  return s.at(shifts % 2 ? operand.shifted : operand.buffer);
}

// Sends the buffer to the next rank of the axis; the last rank sends to the first.
void shift_ring(State& s, const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(s.layer_of(instr), instr.kind)[k];
  const int32_t i = buffer_of(s.layer_of(instr), instr.kind, k), n = ranks_of(s, phase),
                own = s.axis_coordinate(phase.axis);
  const void* src = phase_buffer(s, instr, i, k);
  void* dst = phase_buffer(s, instr, i, k + 1);
  const auto elems = static_cast<uint64_t>(phase_elems(phase, s.program().microbatches[instr.microbatch].count));
  if (n == 1) {
    s.copy(dst, src, elems * dtype_bytes(phase.dtype), GSEL_COPY_ON_DEVICE);
    return;
  }
  gsel_collective call = make_collective(GSEL_COLLECTIVE_SENDRECV, src, dst, elems, phase.dtype, 0, (own + 1) % n);
  call.source = (own + n - 1) % n;
  call.recv_count = elems;
  call_now(s, instr_row(instr.kind).counted_under, phase.axis, call);
}

void reduce_phase(State& s, const gsel_instr& instr, size_t k) {
  const gsel_phase& phase = phases_of(s.layer_of(instr), instr.kind)[k];
  if (phase.axis < 0) return;
  if (ring_shift(phase)) return shift_ring(s, instr, k);
  if (ranks_of(s, phase) == 1) return;
  const int64_t elems = phase_elems(phase, s.program().microbatches[instr.microbatch].count);
  void* data = phase_buffer(s, instr, buffer_of(s.layer_of(instr), instr.kind, k), k);
  call_now(s, instr_row(instr.kind).counted_under, phase.axis,
           make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(elems), phase.dtype, phase.op));
}

void join_phases(State& s, const gsel_instr& instr) {
  const std::vector<gsel_phase>& phases = phases_of(s.layer_of(instr), instr.kind);
  for (size_t k = 0; k < phases.size(); ++k) {
    const auto elems = static_cast<size_t>(phase_elems(phases[k], s.program().microbatches[instr.microbatch].count));
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double neutral = phases[k].op == GSEL_MAX ? -kInfinity : phases[k].op == GSEL_MIN ? kInfinity : 0;
    void* const buffer = phase_buffer(s, instr, buffer_of(s.layer_of(instr), instr.kind, k), k);
    if (neutral == 0) {
      s.device->enqueue(&gsel_device_v1::zero, buffer, uint64_t{elems * dtype_bytes(phases[k].dtype)});
      reduce_phase(s, instr, k);
      continue;
    }
    std::vector<char>& bytes = s.lent.neutral;
    bytes.resize(elems * dtype_bytes(phases[k].dtype));
    if (phases[k].dtype == GSEL_F32)
      std::fill_n(reinterpret_cast<float*>(bytes.data()), elems, static_cast<float>(neutral));
    else
      std::fill_n(reinterpret_cast<double*>(bytes.data()), elems, neutral);
    s.copy(buffer, bytes.data(), bytes.size(), GSEL_COPY_TO_DEVICE);
    reduce_phase(s, instr, k);
  }
}

// Runs the remaining reductions so that other ranks do not wait; the contents no longer matter.
void finish_phases(State& s, const gsel_instr& instr) {
  for (size_t k = s.run->phase > 0 ? s.run->phase - 1 : 0; k < phases_of(s.layer_of(instr), instr.kind).size(); ++k)
    reduce_phase(s, instr, k);
  s.run->phase = 0;
}

// ---- gradients ----------------------------------------------------------------------------------------------------

// All parameters of a layer share one `accumulate`. If a tied one already has a gradient, or the layer always adds, it
// is 1, and the gradients of the others are zeroed first.
void begin_weight_gradients(State& s, const Layer& layer) {
  auto begun = [&](int32_t p) { return s.model.params()[p].trainable() && s.run->weight_begun[p]; };
  s.lent.call.accumulate = layer.always_accumulates() || std::ranges::any_of(layer.params, begun);
  if (!s.lent.call.accumulate) return;
  for (int32_t p : layer.params)
    if (s.model.params()[p].trainable() && !s.run->weight_begun[p]) zero_gradient(s, p);
}

// A gradient that was not produced has no contribution yet; it is zeroed when something reads it.
void finish_weight_gradients(State& s, const Layer& layer) {
  for (size_t i = 0; i < layer.params.size(); ++i) {
    const int32_t p = layer.params[i];
    if (!s.model.params()[p].trainable() || !s.lent.produced[i]) continue;
    s.run->weight_begun[p] = s.run->used[p] = true;
  }
}

// For kernels that always accumulate.
void zero_contributions(State& s, const Layer& layer, int32_t mb) {
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const Value& value = s.model.values()[layer.inputs[i]];
    if (value.needs_gradient)
      s.device->enqueue(&gsel_device_v1::zero, s.at(s.operands().inputs[i].contribution()),
                        static_cast<uint64_t>(value_bytes(value, s.program().microbatches[mb].count)));
  }
}

// From here on all gradients of the step include the loss scale.
void scale_contribution(State& s, const ArenaOperands::OfValue& operand, int32_t v, int32_t mb) {
  if (s.loss_scale.value() == 1) return;
  const Value& value = s.model.values()[v];
  s.device->enqueue(&gsel_device_v1::scale, s.at(operand.contribution()), value.dtype, s.loss_scale.value(),
                    static_cast<uint64_t>(value_elems(value, s.program().microbatches[mb].count)));
}

// Before the first phase. Opens the windows of gradients, also for a micro-batch whose data ended early. A micro-batch
// that is empty in the program opens none; they open at the first instruction that needs them.
void begin_backward(State& s, const gsel_instr& instr, const Layer& layer) {
  s.lent.call.accumulate = 0;
  if (layer.always_accumulates() && instr_row(instr.kind).input_half && !s.is_empty(instr.microbatch))
    zero_contributions(s, layer, instr.microbatch);
  if (!instr_row(instr.kind).weight_half) return;
  for (size_t i = 0; i < layer.params.size(); ++i)
    if (const int32_t p = layer.params[i];
        s.model.params()[p].trainable() && s.program().microbatches[instr.microbatch].count > 0)
      open_gradient_window(s, s.params.bucket_of(p), s.operands().params[i].gradient_window);
  if (!s.is_empty(instr.microbatch)) begin_weight_gradients(s, layer);
}

void lend_gradients(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  const ArenaOperands& operands = s.operands();
  const Access written = s.run->phase ? Access::update : Access::write;
  s.lent.t_d_outputs.clear();
  s.lent.t_d_inputs.clear();
  s.lent.t_d_params.clear();
  for (size_t i = 0; i < layer.outputs.size(); ++i)
    s.lent.t_d_outputs.push_back(
        s.lent.lender.lend(value_view(s, layer.outputs[i], mb, s.at(operands.outputs[i].gradient)), Access::read));
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    s.lent.t_d_inputs.push_back(
        s.lent.lender.lend(value_view(s, layer.inputs[i], mb, s.at(operands.inputs[i].contribution())),
                           layer.always_accumulates() ? Access::update : written));
  if (!instr_row(instr.kind).weight_half) return;
  for (int32_t p : layer.params)
    s.lent.t_d_params.push_back(s.lent.lender.lend(gradient_tensor(s.model.params()[p], s.params.gradient(p)),
                                                   s.lent.call.accumulate ? Access::update : written));
}

void finish_backward(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  if (instr_row(instr.kind).input_half)
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      const int32_t v = layer.inputs[i];
      if (!s.model.values()[v].needs_gradient) continue;
      if (layer.is_loss()) scale_contribution(s, s.operands().inputs[i], v, mb);
      finish_contribution(s, s.operands().inputs[i], v, mb);
    }
  if (instr_row(instr.kind).weight_half) finish_weight_gradients(s, layer);
  check_for_non_finite(s, instr, layer);
  if (s.is_at_last_backward()) s.backward_done.record_compute();
}

// ---- what is lent -------------------------------------------------------------------------------------------------

gsel_tensor lend_param(State& s, const ArenaOperands::OfParam& operand, int32_t p, bool reads) {
  const Param& param = s.model.params()[p];
  if (!reads) return param_tensor(param, nullptr);
  void* kept = s.params.param(p);
  if (!kept)
    fail(GSEL_ERR_INTERNAL, "parameter \"{}\" is read at step instruction {} and not gathered", param.name,
         s.run->position);
  const gsel_dtype kept_as = s.params.layout(s.params.bucket_of(p)).dtype;
  if (kept_as == param.dtype) return s.lent.lender.lend(param_tensor(param, kept), Access::read);
  void* cast = s.at(operand.cast);
  s.device->enqueue(&gsel_device_v1::cast, cast, param.dtype, static_cast<const void*>(kept), kept_as,
                    static_cast<uint64_t>(param.n_elems));
  return s.lent.lender.lend(param_tensor(param, cast), Access::read);
}

// Outputs of a forward are lent for writing, and in later phases for update.
void lend_values(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t mb = instr.microbatch;
  const ArenaOperands& operands = s.operands();
  const Access written = !is_forward(instr.kind) ? Access::read : s.run->phase ? Access::update : Access::write;
  s.lent.t_params.clear();
  s.lent.t_inputs.clear();
  s.lent.t_outputs.clear();
  s.lent.t_reductions.clear();
  for (size_t i = 0; i < layer.params.size(); ++i)
    s.lent.t_params.push_back(lend_param(s, operands.params[i], layer.params[i], layer.reads_param(instr.kind, i)));
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const int32_t v = layer.inputs[i];
    s.lent.t_inputs.push_back(s.lent.lender.lend(value_view(s, v, mb, s.at(operands.inputs[i].value)), Access::read));
  }
  for (size_t i = 0; i < layer.outputs.size(); ++i) {
    const int32_t v = layer.outputs[i];
    s.lent.t_outputs.push_back(s.lent.lender.lend(value_view(s, v, mb, s.at(operands.outputs[i].value)), written));
  }
  const uint64_t bytes = saved_bytes(layer, s.program().microbatches[mb].count);
  if (bytes && layer.reads_saved(instr.kind)) {
    s.lent.call.saved = s.lent.lender.lend_bytes(s.at(operands.saved), bytes, written);
    s.lent.call.saved_bytes = bytes;
  }
  const std::vector<gsel_phase>& buffers = buffers_of(layer, instr.kind);
  for (size_t i = 0; i < buffers.size(); ++i) {
    void* data = phase_buffer(s, instr, static_cast<int32_t>(i), s.run->phase);
    s.lent.t_reductions.push_back(
        s.lent.lender.lend(phase_tensor(buffers[i], s.program().microbatches[mb].count, data), Access::update));
  }
}

void lend_shards(const Fixed& fixed, Lent& lent, const Layer& layer) {
  lent.param_shards.clear();
  lent.input_shards.clear();
  lent.output_shards.clear();
  for (int32_t p : layer.params) lent.param_shards.push_back(fixed.model.params()[p].shard.view());
  for (int32_t v : layer.inputs) lent.input_shards.push_back(fixed.model.values()[v].shard.view());
  for (int32_t v : layer.outputs) lent.output_shards.push_back(fixed.model.values()[v].shard.view());
  lent.call.param_shards = lent.param_shards.data();
  lent.call.input_shards = lent.input_shards.data();
  lent.call.output_shards = lent.output_shards.data();
  lent.call.shard_index = fixed.axis_coordinate(fixed.sharing_axis());
  lent.call.shard_count = fixed.axis_size(fixed.sharing_axis());
}

void lend_call(State& s, const gsel_instr& instr, const Layer& layer) {
  const Microbatch& mb = s.program().microbatches[instr.microbatch];
  Lent& lent = s.lent;
  gsel_call& call = lent.call;
  const int32_t accumulate = call.accumulate;  // set when the backward began
  list_samples(lent, *s.run, mb);
  call = {};
  lend_values(s, instr, layer);
  if (!is_forward(instr.kind)) {
    call.accumulate = accumulate;
    lend_gradients(s, instr, layer);
  }
  call.struct_size = sizeof call;
  call.layer = layer.origin;
  call.microbatch = s.run->microbatch_number[instr.microbatch];
  call.n_samples = mb.count;
  call.sample_ids = lent.sample_ids.data();
  call.params = lent.t_params.data();
  call.inputs = lent.t_inputs.data();
  call.outputs = lent.t_outputs.data();
  call.d_outputs = lent.t_d_outputs.data();
  call.d_inputs = lent.t_d_inputs.data();
  call.d_params = lent.t_d_params.data();
  call.stream = s.device->native_compute();
  call.n_params = static_cast<int32_t>(layer.params.size());
  call.n_inputs = static_cast<int32_t>(layer.inputs.size());
  call.n_outputs = static_cast<int32_t>(layer.outputs.size());
  call.rng_key = derive_key(s.run->rng_key(s), layer.name);
  call.message = lent.message.data();
  call.message_capacity = lent.message.size();
  call.user_data = layer.user_data;
  call.step = s.step;
  call.evaluating = s.run->evaluates();
  call.phase = static_cast<int32_t>(s.run->phase);
  call.reductions = lent.t_reductions.data();
  call.n_reductions = static_cast<int32_t>(lent.t_reductions.size());
  call.produced = lent.produced.data();
  call.device_rng_key = s.graphs->device_rng_key(instr.layer);
  lend_shards(s, lent, layer);
}

void collect_loss(State& s, const gsel_instr& instr) {
  const std::vector<ArenaOperands::OfValue>& outputs = s.operands().outputs;
  s.run->fetched[instr.microbatch] = static_cast<int64_t>(s.numbers.fetch(s.at(outputs[0].value)));
  s.numbers.fetch(s.at(outputs[1].value));
  if (s.numbers.are_known_at_once()) take_loss(s, instr.microbatch);
}

}  // namespace

// ---- the instruction ----------------------------------------------------------------------------------------------

bool hand_out_layer(State& s, const gsel_instr& instr) {
  const Layer& layer = s.layer_of(instr);
  if (layer.redistributes) {
    redistribute_layer(s, instr);
    return false;
  }
  if (s.run->phase == 0) {
    s.lent.produced.assign(layer.params.size(), 1);
    if (!is_forward(instr.kind)) begin_backward(s, instr, layer);
  }
  if (s.is_empty(instr.microbatch)) {
    join_phases(s, instr);
    if (s.is_at_last_backward()) s.backward_done.record_compute();
    return false;
  }
  if (s.run->is_without_callbacks()) {
    finish_phases(s, instr);
    return false;
  }
  if (s.run->phase > 0) reduce_phase(s, instr, s.run->phase - 1);
  lend_call(s, instr, layer);
  hand_out(s.lent, instr_row(instr.kind).callback);
  return true;
}

void take_back_layer(State& s, const gsel_instr& instr) {
  s.lent.lender.take_back();
  if (s.run->phase < phases_of(s.layer_of(instr), instr.kind).size()) {
    ++s.run->phase;
    return;
  }
  s.run->phase = 0;
  if (!is_forward(instr.kind)) return finish_backward(s, instr, s.layer_of(instr));
  const bool is_first = !instr_row(instr.kind).recomputes;
  if (is_first && s.layer_of(instr).is_loss() && s.run->collects_losses()) collect_loss(s, instr);
}

}  // namespace gsel::execute
