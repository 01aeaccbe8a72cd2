// train/check/member.cc: the buffers of a layer's calls, by role. See member.h.
#include "train/check/member.h"

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

}  // namespace gsel::check
