// train/inference.cc: see inference.h. Each value has memory of its own; saved bytes are scratch, nobody reads them.
#include "train/inference.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/align.h"
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
Inference::Inference(std::shared_ptr<Backend> backend, const Model& model, const ParamStorage& params, int32_t value,
                     int64_t n_samples)
    : backend_(std::move(backend)),
      model_(model),
      params_(params),
      value_(value),
      n_samples_(n_samples),
      needed_values_(model.values().size()),
      offsets_(model.values().size()),
      sample_ids_(n_samples) {
  std::iota(sample_ids_.begin(), sample_ids_.end(), 0);
  needed_values_[value] = true;
  uint64_t saved = 0;
  for (int32_t l = static_cast<int32_t>(model.layers().size()) - 1; l >= 0; --l) {
    const Layer& layer = model.layers()[l];
    if (std::ranges::none_of(layer.outputs, [&](int32_t v) { return needed_values_[v]; })) continue;
    if (layer.pull_only()) fail(GSEL_ERR_STATE, "layer \"{}\" has no callbacks; inference pushes", layer.name);
    layers_.push_back(l);
    for (int32_t v : layer.inputs) needed_values_[v] = true;
    for (int32_t v : layer.outputs) needed_values_[v] = true;
    saved = std::max(saved, saved_bytes(layer, n_samples));
  }
  std::ranges::reverse(layers_);
  for (size_t v = 0; v < needed_values_.size(); ++v) {
    offsets_[v] = saved_offset_;
    if (needed_values_[v]) saved_offset_ += round_up(value_bytes(model.values()[v], n_samples), kTensorAlign);
  }
  memory_ = Memory(backend_, saved_offset_ + round_up(saved, kTensorAlign));
}

void Inference::run(gsel_data_fn data, void* user_data, uint64_t rng_key, void* dst) {
  fill_inputs(data, user_data);
  for (int32_t l : layers_) forward(l, rng_key);
  backend_->run(&gsel_backend_v1::copy, dst, static_cast<const void*>(memory_.at(offsets_[value_])),
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

void Inference::forward(int32_t l, uint64_t rng_key) {
  const Layer& layer = model_.layers()[l];
  std::vector<gsel_tensor> params, inputs, outputs;
  for (int32_t p : layer.params) params.push_back(param_tensor(model_.params()[p], params_.param(p)));
  for (int32_t v : layer.inputs) inputs.push_back(view(v));
  for (int32_t v : layer.outputs) outputs.push_back(view(v));
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
  call.saved = call.saved_bytes ? memory_.at(saved_offset_) : nullptr;
  call.rng_key = derive_key(rng_key, layer.name);
  call.message = message.data();
  call.message_capacity = message.size();
  call.user_data = layer.user_data;
  check_callback([&] { return layer.forward(&call, layer.user_data); }, message.data(),
                 fmt::format("layer \"{}\"", layer.name));
}

}  // namespace gsel
