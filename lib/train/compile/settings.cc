// train/compile/settings.cc: see settings.h.
#include "train/compile/settings.h"

#include <algorithm>

namespace gsel {

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

}  // namespace gsel
