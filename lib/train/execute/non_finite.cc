// train/execute/non_finite.cc: see non_finite.h.
#include "train/execute/non_finite.h"

#include <algorithm>
#include <cmath>

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
