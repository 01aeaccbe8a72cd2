// test_optimizer_bytes.cc: AdamW with moments of one byte: which values the codes stand for, what becomes of a moment,
// and how far training with them goes from training with f32.
#include <cmath>
#include <set>

#include "device/formulas/byte_state.h"
#include "device/host/kernels.h"
#include "support/vectors.h"

namespace {

using gsel::host::Isa;
using namespace gsel_test;

constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.99;

constexpr gsel::CodeValues kSignedValues = gsel::code_values<gsel::Signed, true>(),
                           kUnsignedValues = gsel::code_values<gsel::Unsigned, false>();

// The values of the paper's code, built the way its authors' program does: per decade, middles of equal parts.
std::set<float> published_values(bool with_sign) {
  std::set<float> values{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (with_sign ? 1 : 2) << decade;
    for (int k = 0; k < parts; ++k) {
      const double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts;
      const double value = std::pow(10.0, decade - 6) * (low + high) / 2;
      values.insert(static_cast<float>(value));
      if (with_sign) values.insert(static_cast<float>(-value));
    }
  }
  return values;
}

void check_values(const gsel::CodeValues& values, bool with_sign) {
  const std::set<float> published = published_values(with_sign);
  assert_int_equal(published.size(), 256);
  std::vector<float> ours(std::begin(values.of), std::end(values.of));
  std::ranges::sort(ours);
  size_t i = 0;
  for (const float x : published) {
    assert_true(std::fabs(ours[i] - x) <= 1e-6f * std::fabs(x));
    ++i;
  }
  assert_true(values.of[0] == 0);
}

void codes_stand_for_the_published_values(void**) {
  check_values(kSignedValues, true);
  check_values(kUnsignedValues, false);
}

struct ByteArrays {
  std::vector<float> param, gradient, scale0, scale1;
  std::vector<uint8_t> code0, code1;

  ByteArrays(size_t count, uint64_t seed)
      : param(count), gradient(count), scale0((count + 255) / 256), scale1(scale0), code0(count), code1(count) {
    for (float& x : param) x = random_float(seed);
    set_gradient(seed);
  }
  // Of magnitudes from 1e-8 to 1, some of them zero.
  void set_gradient(uint64_t seed) {
    for (size_t i = 0; i < gradient.size(); ++i) {
      const auto small = static_cast<float>(std::pow(10.0, -static_cast<double>(next_random(seed) % 9)));
      gradient[i] = i % 11 == 5 ? 0 : small * random_float(seed);
    }
  }
  // On blocks [first, ...) up to element `end`.
  void take_step(Isa isa, int64_t t, size_t first, size_t end, double decay = 0.1) {
    gsel_optimizer_step s{};
    s.struct_size = sizeof s;
    s.kind = GSEL_OPTIMIZER_ADAMW_8BIT;
    s.param = param.data() + first, s.gradient = gradient.data() + first;
    s.state0 = reinterpret_cast<float*>(code0.data() + first);
    s.state1 = reinterpret_cast<float*>(code1.data() + first);
    s.scale0 = scale0.data() + first / 256, s.scale1 = scale1.data() + first / 256;
    s.count = end - first;
    s.t = t;
    s.gradient_scale = 1, s.learning_rate = kRate, s.weight_decay = decay;
    s.beta1 = kBeta1, s.beta2 = kBeta2, s.epsilon = 1e-8;
    gsel::host::byte_state_step(isa, s);
  }
};

// AdamW with moments of f32, without decay.
struct WideArrays {
  std::vector<float> param, gradient, state0, state1;

  void take_step(int64_t t) {
    gsel_optimizer_step s{};
    s.struct_size = sizeof s;
    s.kind = GSEL_OPTIMIZER_ADAMW;
    s.param = param.data(), s.gradient = gradient.data(), s.state0 = state0.data(), s.state1 = state1.data();
    s.count = param.size();
    s.t = t;
    s.gradient_scale = 1, s.learning_rate = kRate, s.beta1 = kBeta1, s.beta2 = kBeta2, s.epsilon = 1e-8;
    gsel::host::elementwise_step(gsel::host::best_isa(), s);
  }
};

float nearest(const std::set<float>& values, float x) {
  const auto above = values.lower_bound(x);
  if (above == values.begin()) return *above;
  if (above == values.end() || x - *std::prev(above) <= *above - x) return *std::prev(above);
  return *above;
}

// What one step from zero keeps: (1 - b1) g and (1 - b2) g^2, each the nearest value of its block's scale.
void moments_become_the_nearest_values(void**) {
  const std::set<float> firsts = published_values(true), seconds = published_values(false);
  for (const Isa isa : available())
    for (const size_t count : {1, 5, 255, 256, 257, 1000}) {
      ByteArrays a(count, count);
      a.take_step(isa, 1, 0, count);
      for (size_t i = 0; i < count; ++i) {
        const float rest1 = static_cast<float>(1 - kBeta1), rest2 = static_cast<float>(1 - kBeta2);
        const float m = rest1 * a.gradient[i], v = rest2 * (a.gradient[i] * a.gradient[i]);
        const float scale0 = a.scale0[i / 256], scale1 = a.scale1[i / 256];
        assert_true(std::fabs(m) <= scale0 && v <= scale1);
        const float m_error = std::fabs(kSignedValues.of[a.code0[i]] - m / scale0);
        const float m_least = std::fabs(nearest(firsts, m / scale0) - m / scale0);
        assert_true(m_error <= m_least + 1e-6f * std::fabs(m / scale0));
        const float kept = kUnsignedValues.of[a.code1[i]];
        if (v == 0) assert_true(kept == 0);
        if (v > 0) assert_true(kept > 0);
        const float v_least = std::fabs(nearest(seconds, v / scale1) - v / scale1);
        if (nearest(seconds, v / scale1) > 0)
          assert_true(std::fabs(kept - v / scale1) <= v_least + 1e-6f * (v / scale1));
        else if (v > 0)
          assert_true(kept == *std::next(seconds.begin()));
      }
    }
}

void blocks_give_the_same_bits_in_every_set_and_cut_between_them(void**) {
  constexpr size_t kCount = 256 * 5 + 77;
  ByteArrays whole(kCount, 2);
  for (int64_t t = 1; t <= 4; ++t) {
    whole.set_gradient(static_cast<uint64_t>(t));
    whole.take_step(Isa::baseline, t, 0, kCount);
  }
  for (const Isa isa : available())
    for (const size_t cut : {256, 512, 1280}) {
      ByteArrays a(kCount, 2);
      for (int64_t t = 1; t <= 4; ++t) {
        a.set_gradient(static_cast<uint64_t>(t));
        a.take_step(isa, t, 0, cut);
        a.take_step(isa, t, cut, kCount);
      }
      assert_true(same(whole.param, a.param) && same(whole.scale0, a.scale0) && same(whole.scale1, a.scale1));
      assert_true(whole.code0 == a.code0 && whole.code1 == a.code1);
    }
}

// After one large gradient, elements of the same block whose own gradients were tiny, and are zero now, must not jump:
// a second moment that had become zero would divide by epsilon.
void small_moments_beside_large_ones_do_not_explode(void**) {
  ByteArrays a(256, 1);
  std::ranges::fill(a.gradient, 1e-5f);
  a.gradient[0] = 1;
  const std::vector<float> before = a.param;
  a.take_step(gsel::host::best_isa(), 1, 0, 256, 0);
  std::ranges::fill(a.gradient, 0.0f);
  for (int64_t t = 2; t <= 20; ++t) a.take_step(gsel::host::best_isa(), t, 0, 256, 0);
  for (size_t i = 0; i < 256; ++i) assert_true(std::fabs(a.param[i] - before[i]) <= 20 * kRate);
}

// A quadratic with curvatures from 0.01 to 1 in the same blocks: gradients c (p - target). Over 200 steps parameters
// move by up to 1.5. A second moment that falls by less than half a step between two codes in each step does not fall
// at all, so single elements lag behind: the farthest by at most 0.25. On average the two ways part by at most 0.02,
// and the loss that is left is at most a quarter larger.
void eight_bits_stay_near_to_f32_over_200_steps(void**) {
  constexpr size_t kCount = 1024;
  ByteArrays bytes(kCount, 11);
  WideArrays wide{bytes.param, bytes.gradient, std::vector<float>(kCount), std::vector<float>(kCount)};
  std::vector<float> target(kCount), curvature(kCount);
  uint64_t state = 12;
  for (size_t i = 0; i < kCount; ++i) {
    target[i] = random_float(state);
    curvature[i] = static_cast<float>(std::pow(10.0, random_float(state) - 1));
  }
  double most = 0, sum = 0, travelled = 0, loss = 0, byte_loss = 0;
  const std::vector<float> begin = wide.param;
  for (int64_t t = 1; t <= 200; ++t) {
    for (size_t i = 0; i < kCount; ++i) {
      wide.gradient[i] = curvature[i] * (wide.param[i] - target[i]);
      bytes.gradient[i] = curvature[i] * (bytes.param[i] - target[i]);
    }
    wide.take_step(t);
    bytes.take_step(gsel::host::best_isa(), t, 0, kCount, 0);
  }
  for (size_t i = 0; i < kCount; ++i) {
    const double distance = std::fabs(static_cast<double>(wide.param[i]) - bytes.param[i]);
    most = std::max(most, distance), sum += distance;
    travelled = std::max(travelled, std::fabs(static_cast<double>(wide.param[i]) - begin[i]));
  }
  for (size_t i = 0; i < kCount; ++i) {
    loss += curvature[i] * std::pow(wide.param[i] - target[i], 2);
    byte_loss += curvature[i] * std::pow(bytes.param[i] - target[i], 2);
  }
  if (most > 0.25 || sum / kCount > 0.02 || travelled < 1 || byte_loss > 1.25 * loss) {
    print_error("farthest %g, on average %g, of a way of %g; loss %g beside %g\n", most, sum / kCount, travelled,
                byte_loss, loss);
    fail();
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(codes_stand_for_the_published_values),
      cmocka_unit_test(moments_become_the_nearest_values),
      cmocka_unit_test(blocks_give_the_same_bits_in_every_set_and_cut_between_them),
      cmocka_unit_test(small_moments_beside_large_ones_do_not_explode),
      cmocka_unit_test(eight_bits_stay_near_to_f32_over_200_steps),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
