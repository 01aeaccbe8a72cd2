// train/inference.cc: see inference.h. Each value has memory of its own; saved bytes, casts of parameters and buffers
// of phases are scratch of one layer. What a phase writes is not reduced: the samples of this rank are all there are.
#include "train/inference.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/align.h"
#include "base/current_error.h"
#include "base/foreign.h"
#include "base/printable.h"
#include "base/random.h"

namespace gsel {
namespace {

// Runs a callback; a failure is told with the text it wrote or threw.
template <class Callback>
void check_callback(Callback&& callback, const char* message, const std::string& what) {
  std::string thrown;
  const gsel_status status = call_foreign(callback, GSEL_ERR_CALLBACK, thrown);
  if (status == GSEL_OK) return;
  const std::string why = !thrown.empty() ? thrown : message[0] ? one_line(message) : gsel_status_name(status);
  fail(GSEL_ERR_CALLBACK, "{} failed in an inference: {}", what, why);
}

}  // namespace

Inference::Inference(Executor& executor, const Model& model, const Program& program, int32_t value, int64_t n_samples)
    : executor_(executor),
      model_(model),
      program_(program),
      whole_(executor, program),
      value_(value),
      n_samples_(n_samples),
      needed_values_(model.values().size()),
      offsets_(model.values().size()),
      sample_ids_(n_samples) {
  std::iota(sample_ids_.begin(), sample_ids_.end(), 0);
  needed_values_[value] = true;
  uint64_t scratch = 0;
  for (int32_t l = static_cast<int32_t>(model.layers().size()) - 1; l >= 0; --l) {
    const Layer& layer = model.layers()[l];
    if (std::ranges::none_of(layer.outputs, [&](int32_t v) { return needed_values_[v]; })) continue;
    if (layer.pull_only()) fail(GSEL_ERR_STATE, "layer \"{}\" has no callbacks; inference pushes", layer.name);
    layers_.push_back(l);
    for (int32_t v : layer.inputs) needed_values_[v] = true;
    for (int32_t v : layer.outputs) needed_values_[v] = true;
    scratch = std::max(scratch, scratch_bytes(layer));
  }
  std::ranges::reverse(layers_);
  for (size_t v = 0; v < needed_values_.size(); ++v) {
    offsets_[v] = scratch_begin_;
    if (needed_values_[v]) scratch_begin_ += round_up(value_bytes(model.values()[v], n_samples), kTensorAlign);
  }
  memory_ = CountedMemory(executor.backend(), executor.ledger(), Part::staging, scratch_begin_ + scratch);
}

// Whether a callback gets another type than the parameter is kept in.
bool Inference::is_cast(int32_t p) const {
  return program_.params[p].dtype != model_.params()[p].dtype;
}

uint64_t Inference::scratch_bytes(const Layer& layer) const {
  uint64_t bytes = round_up(saved_bytes(layer, n_samples_), kTensorAlign);
  for (int32_t p : layer.params)
    if (is_cast(p)) bytes += round_up(sizeof(float) * static_cast<uint64_t>(model_.params()[p].n_elems), kTensorAlign);
  for (const gsel_phase& phase : layer.forward_phases) bytes += round_up(phase_bytes(phase, n_samples_), kTensorAlign);
  return bytes;
}

void Inference::run(gsel_data_fn data, void* user_data, uint64_t rng_key, int64_t step, void* dst) {
  std::optional<Error> failure;
  auto attempt = [&](auto&& work) {
    if (failure) return;
    try {
      work();
    } catch (...) {
      failure = current_error();
    }
  };
  attempt([&] { fill_inputs(data, user_data); });
  for (int32_t l : layers_) {
    whole_.open(model_.layers()[l].params);
    attempt([&] { forward(l, rng_key, step); });
  }
  whole_.open({});
  if (failure) throw Error(*failure);
  executor_.backend()->run(&gsel_backend_v1::copy, dst, static_cast<const void*>(memory_.at(offsets_[value_])),
                           value_bytes(model_.values()[value_], n_samples_), int32_t{GSEL_COPY_TO_HOST},
                           static_cast<gsel_stream*>(nullptr));
}

void Inference::fill_inputs(gsel_data_fn data, void* user_data) {
  for (size_t v = 0; v < needed_values_.size(); ++v) {
    if (!needed_values_[v] || !model_.values()[v].is_input()) continue;
    std::array<char, 512> message{};
    const gsel_data_request request{sizeof request,
                                    0,
                                    static_cast<int32_t>(v),
                                    0,
                                    n_samples_,
                                    sample_ids_.data(),
                                    view(static_cast<int32_t>(v)),
                                    message.data(),
                                    message.size()};
    check_callback([&] { return data(&request, user_data); }, message.data(),
                   fmt::format("input \"{}\"", model_.values()[v].name));
  }
}

char* Inference::take_scratch(uint64_t bytes) {
  char* place = memory_.at(scratch_begin_ + scratch_taken_);
  scratch_taken_ += round_up(bytes, kTensorAlign);
  return place;
}

gsel_tensor Inference::lend_param(int32_t p) {
  const Param& param = model_.params()[p];
  void* kept = whole_.param(p);
  if (!is_cast(p)) return param_tensor(param, kept);
  void* cast = take_scratch(sizeof(float) * static_cast<uint64_t>(param.n_elems));
  executor_.backend()->run(&gsel_backend_v1::cast, cast, param.dtype, static_cast<const void*>(kept),
                           program_.params[p].dtype, static_cast<uint64_t>(param.n_elems),
                           static_cast<gsel_stream*>(nullptr));
  return param_tensor(param, cast);
}

void Inference::forward(int32_t l, uint64_t rng_key, int64_t step) {
  const Layer& layer = model_.layers()[l];
  std::vector<gsel_tensor> params, inputs, outputs, reductions;
  std::vector<uint8_t> produced(layer.params.size(), 1);
  scratch_taken_ = 0;
  for (int32_t p : layer.params) params.push_back(lend_param(p));
  for (int32_t v : layer.inputs) inputs.push_back(view(v));
  for (int32_t v : layer.outputs) outputs.push_back(view(v));
  for (const gsel_phase& phase : layer.forward_phases)
    reductions.push_back(phase_tensor(phase, n_samples_, take_scratch(phase_bytes(phase, n_samples_))));
  std::array<char, 512> message{};
  gsel_call call{};
  call.struct_size = sizeof call;
  call.layer = l;
  call.n_samples = n_samples_;
  call.sample_ids = sample_ids_.data();
  call.params = params.data();
  call.inputs = inputs.data();
  call.outputs = outputs.data();
  call.n_params = static_cast<int32_t>(params.size());
  call.n_inputs = static_cast<int32_t>(inputs.size());
  call.n_outputs = static_cast<int32_t>(outputs.size());
  call.saved_bytes = saved_bytes(layer, n_samples_);
  call.saved = call.saved_bytes ? take_scratch(call.saved_bytes) : nullptr;
  call.rng_key = derive_key(rng_key, layer.name);
  call.message = message.data();
  call.message_capacity = message.size();
  call.user_data = layer.user_data;
  call.step = step;
  call.evaluating = 1;
  call.reductions = reductions.data();
  call.n_reductions = static_cast<int32_t>(reductions.size());
  call.produced = produced.data();
  for (; call.phase <= call.n_reductions; ++call.phase)
    check_callback([&] { return layer.forward(&call, layer.user_data); }, message.data(),
                   fmt::format("layer \"{}\"", layer.name));
}

}  // namespace gsel
