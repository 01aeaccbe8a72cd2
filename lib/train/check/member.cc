// train/check/member.cc: the buffers of a layer's calls, by role, and the calls. See member.h.
#include "train/check/member.h"

#include <algorithm>

#include "base/foreign.h"
#include "base/log.h"
#include "model/views.h"

namespace gsel::check {

Member::Member(const Model& of_model, const Layer& of_layer, std::vector<int64_t> ids)
    : model(&of_model), layer(&of_layer), sample_ids(std::move(ids)), produced(of_layer.params.size(), 1) {
  const auto& values = model->values();
  auto add = [&](int32_t role, const std::string& name, const gsel_tensor& view, bool is_there) {
    Buffer buffer = make_buffer(role, static_cast<int32_t>(of[role].size()), name, view);
    buffer.is_absent = !is_there;
    of[role].push_back(std::move(buffer));
  };
  for (size_t i = 0; i < layer->params.size(); ++i) {
    const Param& p = model->params()[layer->params[i]];
    add(GSEL_BUFFER_PARAM, p.name, param_tensor(p, nullptr), true);
    add(GSEL_BUFFER_D_PARAM, p.name, gradient_tensor(p, nullptr), trains(i));
  }
  for (size_t i = 0; i < layer->inputs.size(); ++i) {
    const Value& v = values[layer->inputs[i]];
    add(GSEL_BUFFER_INPUT, v.name, value_tensor(v, n_samples(), nullptr), true);
    add(GSEL_BUFFER_D_INPUT, v.name, value_tensor(v, n_samples(), nullptr), gets_d_input(i));
  }
  for (size_t i = 0; i < layer->outputs.size(); ++i) {
    const Value& v = values[layer->outputs[i]];
    add(GSEL_BUFFER_OUTPUT, v.name, value_tensor(v, n_samples(), nullptr), true);
    add(GSEL_BUFFER_D_OUTPUT, v.name, value_tensor(v, n_samples(), nullptr), gets_d_output(i));
  }
  const auto bytes = static_cast<int64_t>(saved_bytes(*layer, n_samples()));
  if (bytes > 0) add(GSEL_BUFFER_SAVED, "", gsel_tensor{nullptr, bytes, {bytes}, 1, GSEL_U8}, true);
}

bool Member::gets_d_output(size_t i) const {
  return !layer->is_loss() && model->values()[layer->outputs[i]].needs_gradient;
}
bool Member::gets_d_input(size_t i) const {
  return model->values()[layer->inputs[i]].needs_gradient;
}
bool Member::trains(size_t param) const {
  return model->params()[layer->params[param]].trainable();
}

std::vector<Buffer*> written_by(Member& member, int32_t callback) {
  std::vector<Buffer*> result;
  auto take = [&](int32_t role) {
    for (Buffer& buffer : member[role])
      if (!buffer.is_absent) result.push_back(&buffer);
  };
  if (callback == GSEL_FORWARD) {
    take(GSEL_BUFFER_OUTPUT);
    take(GSEL_BUFFER_SAVED);
    return result;
  }
  if (callback != GSEL_BACKWARD_WEIGHT) take(GSEL_BUFFER_D_INPUT);
  if (callback != GSEL_BACKWARD_INPUT) take(GSEL_BUFFER_D_PARAM);
  return result;
}

bool must_write(const Buffer& buffer) {
  return buffer.role != GSEL_BUFFER_SAVED;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

namespace {

gsel_layer_fn function_of(const Layer& layer, int32_t callback) {
  switch (callback) {
    case GSEL_FORWARD:
      return layer.forward;
    case GSEL_BACKWARD_INPUT:
      return layer.backward_input;
    case GSEL_BACKWARD_WEIGHT:
      return layer.backward_weight;
    default:
      return layer.backward;
  }
}

struct PhasesOf {
  const std::vector<gsel_phase>&phases, &buffers;
  const std::vector<int32_t>& buffer_of;
};

PhasesOf phases_of(const Layer& layer, int32_t callback) {
  static const std::vector<gsel_phase> none;
  static const std::vector<int32_t> no_buffers;
  if (callback == GSEL_FORWARD) return {layer.forward_phases, layer.forward_buffers, layer.forward_buffer_of};
  if (callback == GSEL_BACKWARD_WEIGHT) return {none, none, no_buffers};
  return {layer.backward_phases, layer.backward_buffers, layer.backward_buffer_of};
}

// Everything that a call points to.
struct Arguments {
  std::array<std::vector<gsel_tensor>, kRoles> tensors;
  std::array<std::vector<gsel_shard>, 3> shards;  // of params, inputs, outputs
  std::vector<Loan> loans;
  std::vector<Buffer> unread;  // lent instead of NULL
  std::array<char, 512> message{};
};

bool reads(const Member& m, gsel_instr_kind kind, int32_t role, size_t i) {
  switch (role) {
    case GSEL_BUFFER_PARAM:
      return m.layer->reads_param(kind, i);
    case GSEL_BUFFER_INPUT:
      return m.layer->reads_input(kind, i);
    case GSEL_BUFFER_OUTPUT:
      return m.layer->reads_output(kind, i);
    case GSEL_BUFFER_SAVED:
      return m.layer->reads_saved(kind);
    default:
      return true;
  }
}

// Whether a callback has anything in this list.
bool has_list(int32_t callback, int32_t role) {
  if (role == GSEL_BUFFER_D_OUTPUT) return callback != GSEL_FORWARD;
  if (role == GSEL_BUFFER_D_INPUT) return callback == GSEL_BACKWARD || callback == GSEL_BACKWARD_INPUT;
  if (role == GSEL_BUFFER_D_PARAM) return callback == GSEL_BACKWARD || callback == GSEL_BACKWARD_WEIGHT;
  return true;
}

void list_loans(Member& m, const Round& round, Arguments& to) {
  const std::vector<Buffer*> written = written_by(m, round.callback);
  const gsel_instr_kind kind = round.callback;
  size_t most = 0;
  for (const auto& list : m.of) most += list.size();
  to.unread.reserve(most);  // loans point into it
  for (auto& list : m.of)
    for (size_t i = 0; i < list.size(); ++i) {
      Buffer& buffer = list[i];
      const bool writes = std::ranges::count(written, &buffer) > 0 || buffer.role == GSEL_BUFFER_REDUCTION;
      if (buffer.is_absent || !has_list(round.callback, buffer.role)) continue;
      if (writes || reads(m, kind, buffer.role, i)) {
        to.loans.push_back({&buffer, writes});
      } else if (round.unread) {
        to.unread.push_back(buffer);
        to.unread.back().fill(round.unread);
        to.loans.push_back({&to.unread.back(), false});
      }
    }
}

void list_tensors(const Member& m, const Round& round, Arguments& to) {
  for (const auto& list : m.of)
    for (const Buffer& buffer : list)
      if (has_list(round.callback, buffer.role)) to.tensors[buffer.role].push_back(buffer.view);
  for (const Loan& loan : to.loans) to.tensors[loan.buffer->role][loan.buffer->index].data = loan.lent;
  for (int32_t p : m.layer->params) to.shards[0].push_back(m.model->params()[p].shard.view());
  for (int32_t v : m.layer->inputs) to.shards[1].push_back(m.model->values()[v].shard.view());
  for (int32_t v : m.layer->outputs) to.shards[2].push_back(m.model->values()[v].shard.view());
}

gsel_call call_of(Member& m, const Round& round, int32_t phase, Arguments& a) {
  gsel_call call{};
  call.struct_size = sizeof call;
  call.layer = m.layer->origin;
  call.microbatch = m.microbatch;
  call.n_samples = m.n_samples();
  call.sample_ids = m.sample_ids.data();
  call.params = a.tensors[GSEL_BUFFER_PARAM].data();
  call.inputs = a.tensors[GSEL_BUFFER_INPUT].data();
  call.outputs = a.tensors[GSEL_BUFFER_OUTPUT].data();
  call.d_outputs = a.tensors[GSEL_BUFFER_D_OUTPUT].data();
  call.d_inputs = a.tensors[GSEL_BUFFER_D_INPUT].data();
  call.d_params = a.tensors[GSEL_BUFFER_D_PARAM].data();
  call.n_params = static_cast<int32_t>(m.layer->params.size());
  call.n_inputs = static_cast<int32_t>(m.layer->inputs.size());
  call.n_outputs = static_cast<int32_t>(m.layer->outputs.size());
  call.accumulate = round.accumulate;
  const auto& saved = a.tensors[GSEL_BUFFER_SAVED];
  if (!saved.empty() && saved.front().data) {
    call.saved = saved.front().data;
    call.saved_bytes = static_cast<uint64_t>(saved.front().n_elems);
  }
  call.rng_key = round.rng_key;
  call.message = a.message.data();
  call.message_capacity = a.message.size();
  call.user_data = m.layer->user_data;
  call.evaluating = round.evaluating;
  call.phase = phase;
  call.reductions = a.tensors[GSEL_BUFFER_REDUCTION].data();
  call.n_reductions = static_cast<int32_t>(m[GSEL_BUFFER_REDUCTION].size());
  call.produced = m.produced.data();
  call.param_shards = a.shards[0].data();
  call.input_shards = a.shards[1].data();
  call.output_shards = a.shards[2].data();
  call.shard_index = m.shard_index;
  call.shard_count = m.shard_count;
  return call;
}

// Before the first phase: poisons outputs and makes the reduction buffers.
void prepare(Member& m, const Round& round) {
  const PhasesOf phases = phases_of(*m.layer, round.callback);
  m.produced.assign(m.layer->params.size(), 1);
  for (Buffer* buffer : written_by(m, round.callback))
    if (buffer->role == GSEL_BUFFER_D_INPUT && m.layer->always_accumulates())
      buffer->fill(0);
    else if (buffer->role != GSEL_BUFFER_D_PARAM || (!round.accumulate && round.poisons_gradients))
      buffer->fill(round.poison);
  m[GSEL_BUFFER_REDUCTION].clear();
  for (size_t i = 0; i < phases.buffers.size(); ++i) {
    m[GSEL_BUFFER_REDUCTION].push_back(make_buffer(GSEL_BUFFER_REDUCTION, static_cast<int32_t>(i), "",
                                                   phase_tensor(phases.buffers[i], m.n_samples(), nullptr)));
    m[GSEL_BUFFER_REDUCTION].back().fill(round.poison);
  }
}

double combined(gsel_op op, double a, double b) {
  return op == GSEL_SUM ? a + b : op == GSEL_MAX ? std::max(a, b) : std::min(a, b);
}

// The collective between phases k and k + 1.
void reduce(std::span<Member> ranks, gsel_axis axis, int32_t callback, size_t k) {
  const PhasesOf phases = phases_of(*ranks.front().layer, callback);
  const gsel_phase& phase = phases.phases[k];
  if (phase.axis != axis || ranks.size() == 1) return;
  const auto i = static_cast<size_t>(phases.buffer_of[k]);
  auto buffer = [&](size_t rank) -> Buffer& { return ranks[rank][GSEL_BUFFER_REDUCTION][i]; };
  if (ring_shift(phase)) {
    for (size_t r = ranks.size() - 1; r > 0; --r) std::swap(buffer(r).bytes, buffer(r - 1).bytes);
    return;
  }
  Buffer& first = buffer(0);
  for (int64_t e = 0; e < first.elems(); ++e)
    for (size_t r = 1; r < ranks.size(); ++r) first.put(e, combined(phase.op, first.number(e), buffer(r).number(e)));
  for (size_t r = 1; r < ranks.size(); ++r) buffer(r).bytes = first.bytes;
}

}  // namespace

bool Caller::call(Member& member, const Round& round, int32_t phase) {
  const Layer& layer = *member.layer;
  const Site site(layer, round.callback);
  Arguments arguments;
  list_loans(member, round, arguments);
  Ground& ground = grounds_[round.moved];
  ground.lend(arguments.loans, round.poison);
  if (round.moved) grounds_[0].poison();
  list_tensors(member, round, arguments);
  gsel_call call = call_of(member, round, phase, arguments);
  call.stream = device_->native_compute();
  log(GSEL_LOG_DEBUG, "check", "layer \"{}\" {}", layer.name, callback_name(round.callback));
  std::string thrown;
  const gsel_status status = call_foreign([&] { return function_of(layer, round.callback)(&call, layer.user_data); },
                                          GSEL_ERR_CALLBACK, thrown);
  if (status) {
    arguments.message.back() = '\0';
    fail(GSEL_ERR_CALLBACK, "layer \"{}\" {} failed while it was checked: {}", layer.name,
         callback_name(round.callback), reason_of(status, thrown.empty() ? arguments.message.data() : thrown));
  }
  bool good = false;
  try {
    good = ground.take_back(arguments.loans, round.poison, site, findings_);
  } catch (const Error& error) {  // of what the callback has enqueued
    fail(error.code(), "layer \"{}\" {} failed while it was checked: {}", layer.name, callback_name(round.callback),
         error.message());
  }
  if (!round.moved || grounds_[0].is_poisoned()) return good;
  for (const Loan& loan : arguments.loans)
    if (loan.is_written) {
      findings_.breach(GSEL_BREACH_KEPT_POINTER, site, *loan.buffer, 0,
                       "memory of an earlier call was written; pointers are lent for one call, take them from it");
      return false;
    }
  return false;
}

bool Caller::run(std::span<Member> ranks, gsel_axis axis, const Round& round) {
  bool good = true;
  for (Member& member : ranks) prepare(member, round);
  const size_t n = phases_of(*ranks.front().layer, round.callback).phases.size();
  for (size_t phase = 0; phase <= n; ++phase) {
    for (Member& member : ranks) good &= call(member, round, static_cast<int32_t>(phase));
    if (phase < n) reduce(ranks, axis, round.callback, phase);
  }
  return good;
}

}  // namespace gsel::check
