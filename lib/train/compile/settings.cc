// train/compile/settings.cc: see settings.h.
#include "train/compile/settings.h"

#include <algorithm>

#include "base/text.h"

namespace gsel {

// ---- precision and non-finite numbers ------------------------------------------------------------------------------

gsel_dtype kept_dtype(const Param& param, const Config& config) {
  if (param.dtype != GSEL_F32 || config.train.precision == "f32") return param.dtype;
  return config.train.precision == "bf16" ? GSEL_BF16 : GSEL_F16;
}

NonFinite non_finite_of(const Config& config) {
  const auto& train = config.train;
  if (train.non_finite == "off" && train.precision == "fp16" && train.loss_scale == 0) {
    const Place place = config.place_of("train.non_finite");
    throw Error(
        GSEL_ERR_CONFIG,
        fmt::format("{}train.non_finite = \"off\" and train.precision = \"fp16\" with a dynamic loss scale, which "
                    "falls when a gradient overflows; expected \"skip\", \"error\" or a fixed train.loss_scale",
                    place_prefix(place)))
        .at(place);
  }
  if (train.non_finite == "error") return NonFinite::error;
  if (train.non_finite == "off") return NonFinite::off;
  const bool looked_at = train.clip_norm > 0 || train.precision == "fp16";
  return looked_at || train.non_finite == "skip" ? NonFinite::skip : NonFinite::off;
}

bool looks_for_overflow(const Config& config, const Model& model) {
  if (non_finite_of(config) == NonFinite::off) return false;
  if (config.train.precision == "fp16" || config.train.clip_norm <= 0) return true;
  return std::ranges::any_of(model.params(),
                             [](const Param& p) { return p.trainable() && (p.flags & GSEL_PARAM_NO_CLIP); });
}

// ---- train.recompute -----------------------------------------------------------------------------------------------

namespace {

[[noreturn]] void refuse(const Config& config, const std::string& why) {
  const Place place = config.place_of("train.recompute");
  throw Error(GSEL_ERR_CONFIG,
              fmt::format("{}train.recompute = \"{}\": {}", place_prefix(place), config.train.recompute, why))
      .at(place);
}

std::string recomputable_names(const Model& model) {
  std::string names;
  for (const Layer& layer : model.layers())
    if (layer.recomputable() && !layer.is_loss() && !layer.redistributes)
      names += (names.empty() ? "" : ", ") + layer.name;
  return names.empty() ? "none" : names;
}

size_t find_layer(const Model& model, const Config& config, std::string_view name) {
  const auto& layers = model.layers();
  const auto found = std::ranges::find(layers, name, &Layer::name);
  if (found == layers.end())
    refuse(config,
           fmt::format("there is no layer \"{}\"; layers that may be recomputed: {}", name, recomputable_names(model)));
  if (found->is_loss()) refuse(config, fmt::format("layer \"{}\" is the loss, which is never recomputed", name));
  if (!found->recomputable())
    refuse(config, fmt::format("layer \"{}\" was not described as recomputable; those that were: {}", name,
                               recomputable_names(model)));
  return static_cast<size_t>(found - layers.begin());
}

// Redistributions between layers chosen by name are recomputed with them, so that nothing is kept for them.
void choose_redistributions(const Model& model, std::vector<bool>& chosen) {
  for (size_t l = 0; l < chosen.size(); ++l) {
    const Layer& layer = model.layers()[l];
    if (!layer.redistributes || !layer.recomputable()) continue;
    const Value &from = model.values()[layer.inputs.front()], &to = model.values()[layer.outputs.front()];
    chosen[l] = chosen[from.producer] && std::ranges::any_of(to.readers, [&](int32_t r) { return chosen[r]; });
  }
}

std::vector<bool> chosen_layers(const Model& model, const Config& config) {
  std::vector<bool> chosen(model.layers().size());
  std::string_view rest = config.train.recompute;
  if (rest == "none" || rest.empty()) return chosen;
  if (rest == "all") {
    for (size_t l = 0; l < chosen.size(); ++l)
      chosen[l] = model.layers()[l].recomputable() && !model.layers()[l].is_loss();
    return chosen;
  }
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    chosen[find_layer(model, config, trimmed(rest.substr(0, comma)))] = true;
    rest.remove_prefix(more ? comma + 1 : rest.size());
  }
  choose_redistributions(model, chosen);
  return chosen;
}

}  // namespace

std::vector<int32_t> recomputed_before(const Model& model, const Config& config) {
  const std::vector<bool> chosen = chosen_layers(model, config);
  std::vector<int32_t> result(chosen.size(), -1);
  const auto n = static_cast<int32_t>(chosen.size());
  for (int32_t first = 0; first < n; ++first) {
    if (!chosen[first]) continue;
    int32_t end = first, last = -1;
    for (; end < n && chosen[end]; ++end)
      if (model.layers()[end].needs_backward()) last = end;
    if (last >= 0) result[last] = first;
    first = end;
  }
  return result;
}

}  // namespace gsel
