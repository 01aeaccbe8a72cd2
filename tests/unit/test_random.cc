// The generator's numbers are the published ones, and its deviates have the promised distribution.
#include <cmath>

#include "base/random.h"
#include "support/check.h"

static void philox_gives_the_published_numbers(void**) {
  // Known answers of the Random123 distribution for philox4x32-10.
  const auto zeros = gsel::philox(0, 0);
  const std::array<uint32_t, 4> expected{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  assert_memory_equal(zeros.data(), expected.data(), sizeof expected);
}

static void numbers_depend_on_key_and_counter_alone(void**) {
  assert_true(gsel::random_uniform(1, 2) == gsel::random_uniform(1, 2));
  assert_true(gsel::random_uniform(1, 2) != gsel::random_uniform(1, 3));
  assert_true(gsel::random_uniform(1, 2) != gsel::random_uniform(2, 2));
  assert_true(gsel::derive_key(1, "a") != gsel::derive_key(1, "b"));
}

static void moments_are_those_of_the_distributions(void**) {
  constexpr int n = 200000;
  double uniform = 0, normal = 0, square = 0;
  for (int i = 0; i < n; ++i) {
    const float u = gsel::random_uniform(3, i), z = gsel::random_normal(3, i);
    assert_true(u >= 0 && u < 1 && std::isfinite(z));
    uniform += u;
    normal += z;
    square += double(z) * z;
  }
  assert_true(std::fabs(uniform / n - 0.5) < 0.005);
  assert_true(std::fabs(normal / n) < 0.01);
  assert_true(std::fabs(square / n - 1) < 0.02);
}

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_published_numbers),
      cmocka_unit_test(numbers_depend_on_key_and_counter_alone),
      cmocka_unit_test(moments_are_those_of_the_distributions),
  };
  return cmocka_run_group_tests_name("random", tests, nullptr, nullptr);
}
