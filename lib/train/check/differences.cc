// train/check/differences.cc: gradients against central differences of forward, computed in f64 from outputs in
// forward's own types. One element is moved by a small step in both directions. With the gradients of outputs as
// weights,
//     slope = sum over outputs of d_output * (output(x + h) - output(x - h)) / 2h.
// The tolerance is estimated from steps of twice the size, from the one-sided slopes (at a kink, as of relu, any number
// between them passes), and from the rounding of outputs that changed. See layer_check.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"
#include "train/check/layer_check.h"

namespace gsel::check {
namespace {

constexpr int64_t kFew = 64;   // buffers up to this many elements are checked completely
constexpr int32_t kDrawn = 8;  // elements checked of a larger buffer

struct Precision {
  double epsilon, step;
};

Precision precision_of(gsel_dtype dtype) {
  switch (dtype) {
    case GSEL_F64:
      return {1.2e-16, 1e-4};
    case GSEL_F32:
      return {6e-8, 1e-2};
    case GSEL_F16:
      return {5e-4, 0.125};
    case GSEL_BF16:
      return {4e-3, 0.25};
    default:
      return {0.06, 0.5};
  }
}

double root_mean_square(const Buffer& x) {
  double sum = 0;
  for (int64_t i = 0; i < x.elems(); ++i) sum += x.number(i) * x.number(i);
  return x.elems() ? std::sqrt(sum / static_cast<double>(x.elems())) : 0;
}

// The sum of a loss is differentiated with weight 1; other outputs with the gradients given to backward.
double weight_of(const Member& m, const Buffer& output, int64_t i) {
  if (m.layer->is_loss()) return output.index == 0;
  const Buffer& d = m[GSEL_BUFFER_D_OUTPUT][static_cast<size_t>(output.index)];
  return d.is_absent ? 0 : d.number(i);
}

// The rounding error of an output. A loss in f64 is a sum of many terms, rounded in the type of its inputs.
double rounding_of(const Member& m, const Buffer& output, double x) {
  double epsilon = precision_of(output.view.dtype).epsilon;
  if (!m.layer->is_loss()) return epsilon * x;
  int64_t terms = 1;
  for (const Buffer& input : m[GSEL_BUFFER_INPUT])
    if (input.is_float()) {
      epsilon = std::max(epsilon, precision_of(input.view.dtype).epsilon);
      terms = std::max(terms, input.elems());
    }
  return epsilon * x / std::sqrt(static_cast<double>(terms));
}

// The outputs at two points, x - h and x + h.
struct Steps {
  double at[2];
  std::vector<Buffer> outputs[2];
};

struct Measured {
  double value = 0, bend = 0, noise = 0;
};

// bend: the difference of the one-sided slopes. Outputs with a kink here add up without cancelling, since each may take
// either side.
Measured measure(const Member& m, double x, const Steps& steps) {
  constexpr double kKink = 0.25;
  double smooth = 0, kinks = 0, squares = 0, sum = 0;
  for (const Buffer& here : m[GSEL_BUFFER_OUTPUT]) {
    const Buffer* moved[] = {&steps.outputs[0][here.index], &steps.outputs[1][here.index]};
    for (int64_t i = 0; i < here.elems(); ++i) {
      if (here.same_bits(i, *moved[0]) && here.same_bits(i, *moved[1])) continue;
      const double y = here.number(i), w = weight_of(m, here, i);
      double slopes[2];
      for (int side = 0; side < 2; ++side) {
        slopes[side] = w * (moved[side]->number(i) - y) / (steps.at[side] - x);
        const double error =
            w * rounding_of(m, here, std::max(std::fabs(y), std::fabs(moved[side]->number(i)))) / (steps.at[side] - x);
        squares += error * error;
      }
      const double bend = slopes[1] - slopes[0], larger = std::max(std::fabs(slopes[0]), std::fabs(slopes[1]));
      std::fabs(bend) > kKink* larger ? kinks += std::fabs(bend) : smooth += bend;
      sum += (slopes[0] + slopes[1]) / 2;
    }
  }
  return {sum, kinks + std::fabs(smooth), std::sqrt(squares)};
}

}  // namespace

// All elements of small buffers. Of others the first, the last and the largest gradient, and random ones; half of these
// have a nonzero gradient, since table rows that no sample reaches show little.
std::vector<int64_t> LayerCheck::drawn_elements(const Buffer& gradient) const {
  const int64_t n = gradient.elems();
  const int64_t wanted = settings_.differences > 0 ? settings_.differences : n <= kFew ? n : kDrawn;
  std::set<int64_t> drawn;
  if (wanted >= n) {
    for (int64_t i = 0; i < n; ++i) drawn.insert(i);
    return {drawn.begin(), drawn.end()};
  }
  std::vector<int64_t> used;
  int64_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (gradient.number(i) != 0) used.push_back(i);
    if (std::fabs(gradient.number(i)) > std::fabs(gradient.number(largest))) largest = i;
  }
  drawn = {0, n - 1, largest};
  const uint64_t key = derive_key(derive_key(settings_.seed, "elements"), gradient.name);
  for (uint64_t i = 0; std::ssize(drawn) < wanted && i < 4 * static_cast<uint64_t>(wanted); ++i) {
    const double u = random_uniform(key, i);
    drawn.insert(i % 2 && !used.empty() ? used[static_cast<size_t>(u * static_cast<double>(used.size()))]
                                        : static_cast<int64_t>(u * static_cast<double>(n)));
  }
  return {drawn.begin(), drawn.end()};
}

std::vector<Buffer> LayerCheck::outputs_at(int32_t role, size_t index, int64_t element, double x) {
  Member moved = a_;
  moved[role][index].put(element, x);
  caller_.run(moved, round(GSEL_FORWARD));
  return std::move(moved[GSEL_BUFFER_OUTPUT]);
}

// With steps of `times` the usual size; `twice`: also with twice these steps, which gives a better tolerance.
std::optional<LayerCheck::Slope> LayerCheck::slope(int32_t role, size_t index, int64_t element, double times,
                                                   bool twice) {
  Buffer buffer = a_[role][index];
  const double x = buffer.number(element), scale = std::max(root_mean_square(buffer), std::fabs(x));
  const double h = times * precision_of(buffer.view.dtype).step * (scale > 0 ? scale : 1);
  Measured by_steps[2];
  for (int k = 0; k < (twice ? 2 : 1); ++k) {
    Steps steps;
    for (int side = 0; side < 2; ++side) {
      buffer.put(element, x + (k + 1) * (side ? h : -h));
      steps.at[side] = buffer.number(element);  // as rounded by the type
      if (steps.at[side] == x) return std::nullopt;
      steps.outputs[side] = outputs_at(role, index, element, steps.at[side]);
    }
    by_steps[k] = measure(a_, x, steps);
  }
  const auto& [near, far] = by_steps;
  const double tolerance = 32 * near.noise + (twice ? std::fabs(near.value - far.value) : 0) + 0.55 * near.bend +
                           10 * tolerance_ * std::fabs(near.value);
  if (!std::isfinite(near.value) || !std::isfinite(tolerance)) return std::nullopt;
  return Slope{near.value, tolerance};
}

// A small step may be lost in rounding, and a large one hits curvature: one of them has to agree.
bool LayerCheck::agrees(int32_t role, size_t index, int64_t element, double found, double floor, Slope& slope_is) {
  for (const double times : {1.0, 8.0})
    for (const bool twice : {false, true}) {
      const std::optional<Slope> is = slope(role, index, element, times, twice);
      if (!is || std::fabs(found - is->value) <= is->tolerance + floor) return true;
      if (times == 1) slope_is = *is;
    }
  return false;
}

void LayerCheck::check_gradient(const Buffer& gradient, int32_t callback) {
  const int32_t moved = gradient.role == GSEL_BUFFER_D_INPUT ? GSEL_BUFFER_INPUT : GSEL_BUFFER_PARAM;
  const auto index = static_cast<size_t>(gradient.index);
  if (gradient.is_absent || !a_[moved][index].is_float()) return;
  const bool is_produced = gradient.role != GSEL_BUFFER_D_PARAM || gradients_->produced[index];
  for (int64_t element : drawn_elements(gradient)) {
    const double found = is_produced ? gradient.number(element) : 0;
    const double floor =
        1e-6 * largest_magnitude(gradient) + 4 * precision_of(gradient.view.dtype).epsilon * std::fabs(found);
    Slope is{};
    if (agrees(moved, index, element, found, floor, is)) continue;
    findings().breach(
        GSEL_BREACH_GRADIENT, site(callback), gradient, element,
        fmt::format("is {:.6g}, and differences of forward give {:.6g}, within {:.2g}", found, is.value, is.tolerance),
        found, is.value);
    return;
  }
}

void LayerCheck::check_gradients() {
  const bool is_fused = a_.layer->backward;
  for (const Buffer& gradient : (*gradients_)[GSEL_BUFFER_D_INPUT])
    check_gradient(gradient, is_fused ? GSEL_BACKWARD : GSEL_BACKWARD_INPUT);
  for (const Buffer& gradient : (*gradients_)[GSEL_BUFFER_D_PARAM])
    check_gradient(gradient, is_fused ? GSEL_BACKWARD : GSEL_BACKWARD_WEIGHT);
}

}  // namespace gsel::check
