// test_loss_scale.cc: the factor of fp16 losses over good and bad steps, beside the published rule.
#include <algorithm>

#include "support/vectors.h"
#include "train/optimize/optimizer.h"

namespace {

using gsel::Config;
using gsel_test::next_random;

Config fp16(int64_t window, int64_t hysteresis) {
  Config config;
  config.train.precision = "fp16";
  config.train.loss_scale_window = window;
  config.train.loss_scale_hysteresis = hysteresis;
  return config;
}

// The published rule, in its own terms: how many steps lie behind the last overflow.
struct Published {
  double scale = 65536, least = 1;
  int64_t step = 0, last = -1, window, shift, left;
  void update(bool overflow) {
    if (overflow) {
      if (shift == 1 || left == 1)
        scale = std::max(scale / 2, least);
      else
        --left;
      last = step;
    } else if ((step - last) % window == 0) {
      left = shift;
      scale *= 2;
    }
    ++step;
  }
};

void the_loss_scale_moves_as_the_published_rule(void**) {
  uint64_t state = 1;
  for (const int64_t window : {1, 2, 5, 20})
    for (const int64_t hysteresis : {1, 2, 3})
      for (const uint64_t one_in : {2, 5, 30}) {
        gsel::LossScale ours(fp16(window, hysteresis));
        Published theirs{.window = window, .shift = hysteresis, .left = hysteresis};
        for (int i = 0; i < 300; ++i) {
          if (ours.value() != theirs.scale) fail_msg("step %d: expected %g, got %g", i, theirs.scale, ours.value());
          const bool overflow = next_random(state) % one_in == 0;
          ours.update(overflow), theirs.update(overflow);
        }
      }
}

void the_loss_scale_waits_for_its_hysteresis_and_stops_at_its_minimum(void**) {
  gsel::LossScale scale(fp16(3, 2));
  const auto after = [&](bool overflowed) {
    scale.update(overflowed);
    return scale.value();
  };
  assert_true(scale.value() == 65536);
  assert_true(after(true) == 65536);  // one overflow is let pass
  assert_true(after(true) == 32768);  // each further one halves
  assert_true(after(false) == 32768);
  assert_true(after(true) == 16384);
  assert_true(after(false) == 16384 && after(false) == 16384 && after(false) == 32768);  // a good window
  assert_true(after(true) == 32768);                                                     // restored the hysteresis
  for (int i = 0; i < 40; ++i) scale.update(true);
  assert_true(scale.value() == 1);
  assert_true(after(false) == 1 && after(false) == 1 && after(false) == 2);
}

void the_loss_scale_is_fixed_where_it_is_given_and_one_elsewhere(void**) {
  Config config = fp16(1, 1);
  config.train.loss_scale = 128;
  gsel::LossScale fixed(config);
  for (const bool overflowed : {true, false, true}) {
    assert_true(fixed.value() == 128);
    fixed.update(overflowed);
  }
  for (const char* precision : {"f32", "bf16"}) {
    config.train.precision = precision;
    gsel::LossScale none(config);
    none.update(true);
    none.update(false);
    assert_true(none.value() == 1);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(the_loss_scale_moves_as_the_published_rule),
      cmocka_unit_test(the_loss_scale_waits_for_its_hysteresis_and_stops_at_its_minimum),
      cmocka_unit_test(the_loss_scale_is_fixed_where_it_is_given_and_one_elsewhere),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
