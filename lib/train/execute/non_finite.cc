// train/execute/non_finite.cc: see non_finite.h.
#include "train/execute/non_finite.h"

#include <algorithm>
#include <cmath>

namespace gsel {
namespace {

// Layers of the description; a model of one rank of a sharing axis has some of the library's own between them.
int64_t described_layers(const Model& model) {
  int32_t last = 0;
  for (const Layer& layer : model.layers()) last = std::max(last, layer.origin);
  return last + 1;
}

}  // namespace

NonFinite non_finite_of(const Config& config) {
  const auto& train = config.train;
  if (train.non_finite == "off" && train.precision == "fp16" && train.loss_scale == 0) {
    const Place place = config.place_of("train.non_finite");
    throw Error(GSEL_ERR_CONFIG,
                fmt::format("{}train.non_finite = \"off\" and train.precision = \"fp16\" with a dynamic loss scale, "
                            "which falls when a gradient overflows; \"skip\", \"error\" or a fixed train.loss_scale "
                            "would do",
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

double NonFiniteOrigin::order(const Model& model, int32_t n_ranks) const {
  if (!is_known()) return std::numeric_limits<double>::infinity();
  const auto layers = described_layers(model), params = std::ssize(model.params());
  return static_cast<double>(((microbatch * layers + (layers - 1 - layer)) * params + param) * n_ranks + rank);
}

NonFiniteOrigin NonFiniteOrigin::of_order(double order, const Model& model, int32_t n_ranks) {
  if (!std::isfinite(order)) return {};
  const auto layers = described_layers(model), params = std::ssize(model.params());
  auto left = static_cast<int64_t>(order);
  auto take = [&left](int64_t n) {
    const int64_t part = left % n;
    left /= n;
    return static_cast<int32_t>(part);
  };
  NonFiniteOrigin origin;
  origin.rank = take(n_ranks);
  origin.param = take(params);
  origin.layer = static_cast<int32_t>(layers) - 1 - take(layers);
  origin.microbatch = static_cast<int32_t>(left);
  return origin;
}

}  // namespace gsel
