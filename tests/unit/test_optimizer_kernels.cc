// test_optimizer_kernels.cc: the host's optimizer steps against their formulas in double, element by element; that no
// cut and no instruction set changes a bit. 8-bit state has a test of its own.
#include <cmath>

#include "device/host/kernels.h"
#include "support/vectors.h"

namespace {

using gsel::host::Isa;
using namespace gsel_test;

struct Rule {
  const char* name;
  int32_t kind;
  double momentum;
};
constexpr Rule kRules[] = {
    {"sgd", GSEL_OPTIMIZER_SGD, 0},           {"momentum", GSEL_OPTIMIZER_SGD, 0.875},
    {"sign_sgd", GSEL_OPTIMIZER_SIGN_SGD, 0}, {"adamw", GSEL_OPTIMIZER_ADAMW, 0},
    {"adam", GSEL_OPTIMIZER_ADAM, 0},         {"lion", GSEL_OPTIMIZER_LION, 0},
};
constexpr double kRate = 0.01, kDecay = 0.1, kScale = 0.25, kBeta1 = 0.9, kBeta2 = 0.99, kEpsilon = 1e-6;
constexpr size_t kGuard = 8;
constexpr float kUntouched = 77;

double sign(double x) {
  return (x > 0) - (x < 0);
}

// One element, as the papers write it.
void reference(const Rule& rule, double& p, double gradient, double& m, double& v, int64_t t) {
  const double g = gradient * kScale;
  switch (rule.kind) {
    case GSEL_OPTIMIZER_SGD:
      m = rule.momentum * m + g + kDecay * p;
      p -= kRate * m;
      return;
    case GSEL_OPTIMIZER_SIGN_SGD:
      p -= kRate * (sign(g) + kDecay * p);
      return;
    case GSEL_OPTIMIZER_LION:
      p -= kRate * (sign(kBeta1 * m + (1 - kBeta1) * g) + kDecay * p);
      m = kBeta2 * m + (1 - kBeta2) * g;
      return;
    default: {
      const bool decoupled = rule.kind == GSEL_OPTIMIZER_ADAMW;
      const double whole = decoupled ? g : g + kDecay * p;
      m = kBeta1 * m + (1 - kBeta1) * whole;
      v = kBeta2 * v + (1 - kBeta2) * whole * whole;
      const double first = m / (1 - std::pow(kBeta1, static_cast<double>(t)));
      const double second = v / (1 - std::pow(kBeta2, static_cast<double>(t)));
      p -= kRate * (first / (std::sqrt(second) + kEpsilon) + (decoupled ? kDecay * p : 0));
    }
  }
}

// Arrays of a step, `shift` elements off a cache line, with guards behind.
struct Arrays {
  size_t count, shift;
  std::vector<float> param, gradient, state0, state1;
  std::vector<uint16_t> rounded;

  Arrays(size_t n, size_t by, uint64_t seed) : count(n), shift(by) {
    const size_t all = by + n + kGuard;
    param.assign(all, kUntouched), gradient.assign(all, kUntouched);
    state0.assign(all, kUntouched), state1.assign(all, kUntouched);
    rounded.assign(all, 0x5555);
    for (size_t i = by; i < by + n; ++i) param[i] = random_float(seed), state0[i] = state1[i] = 0;
    set_gradient(seed);
  }

  // Some of them zero, as where a row of an embedding was not used.
  void set_gradient(uint64_t seed) {
    for (size_t i = shift; i < shift + count; ++i) gradient[i] = i % 7 == 3 ? 0 : 4 * random_float(seed);
  }

  // The step on elements [first, first + n).
  gsel_optimizer_step step(const Rule& rule, int64_t t, size_t first, size_t n) {
    gsel_optimizer_step s{};
    s.struct_size = sizeof s;
    s.kind = rule.kind;
    s.param = param.data() + shift + first, s.gradient = gradient.data() + shift + first;
    s.state0 = state0.data() + shift + first, s.state1 = state1.data() + shift + first;
    s.count = n;
    s.t = t;
    s.gradient_scale = kScale, s.learning_rate = kRate, s.weight_decay = kDecay, s.momentum = rule.momentum;
    s.beta1 = kBeta1, s.beta2 = kBeta2, s.epsilon = kEpsilon;
    return s;
  }
  void take_step(Isa isa, const Rule& rule, int64_t t) { gsel::host::elementwise_step(isa, step(rule, t, 0, count)); }
};

void check_near(const Rule& rule, const char* what, size_t i, size_t count, float got, double expected) {
  if (std::fabs(got - expected) <= 2e-5 * (1 + std::fabs(expected))) return;
  print_error("%s of %s, element %zu of %zu: expected %.9g, got %.9g\n", what, rule.name, i, count, expected,
              static_cast<double>(got));
  fail();
}

void check_against_reference(const Rule& rule, Isa isa, size_t count, size_t shift) {
  Arrays a(count, shift, 1 + count);
  std::vector<double> p(a.param.begin(), a.param.end()), m(p.size()), v(p.size());
  for (int64_t t = 1; t <= 4; ++t) {
    a.set_gradient(static_cast<uint64_t>(t));
    a.take_step(isa, rule, t);
    for (size_t i = shift; i < shift + count; ++i) {
      reference(rule, p[i], static_cast<double>(a.gradient[i]), m[i], v[i], t);
      check_near(rule, "parameter", i - shift, count, a.param[i], p[i]);
      if (rule.momentum != 0 || rule.kind >= GSEL_OPTIMIZER_ADAMW)
        check_near(rule, "state0", i - shift, count, a.state0[i], m[i]);
      if (rule.kind == GSEL_OPTIMIZER_ADAMW || rule.kind == GSEL_OPTIMIZER_ADAM)
        check_near(rule, "state1", i - shift, count, a.state1[i], v[i]);
    }
  }
  for (const auto* array : {&a.param, &a.state0, &a.state1})
    for (size_t i = 0; i < array->size(); ++i)
      if (i < shift || i >= shift + count) assert_true((*array)[i] == kUntouched);
}

constexpr size_t kCounts[] = {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1023, 1025};

void every_rule_follows_its_formula(void**) {
  for (const Isa isa : available())
    for (const Rule& rule : kRules)
      for (const size_t count : kCounts)
        for (const size_t shift : {0, 1, 3}) check_against_reference(rule, isa, count, shift);
}

void no_cut_and_no_instruction_set_changes_a_bit(void**) {
  constexpr size_t kCount = 1500;
  for (const Rule& rule : kRules) {
    Arrays whole(kCount, 0, 5);
    for (int64_t t = 1; t <= 3; ++t) whole.take_step(Isa::baseline, rule, t);
    for (const Isa isa : available())
      for (const size_t shards : {1, 2, 3, 7, 64}) {
        Arrays cut(kCount, 0, 5);
        for (int64_t t = 1; t <= 3; ++t)
          for (size_t r = 0; r < shards; ++r) {
            const size_t first = kCount * r / shards, end = kCount * (r + 1) / shards;
            gsel::host::elementwise_step(isa, cut.step(rule, t, first, end - first));
          }
        if (!same(whole.param, cut.param) || !same(whole.state0, cut.state0) || !same(whole.state1, cut.state1)) {
          print_error("%s in %zu shards with instruction set %d differs\n", rule.name, shards, static_cast<int>(isa));
          fail();
        }
      }
  }
}

template <class T>
void check_rounded(const Rule& rule, Isa isa, gsel_dtype dtype) {
  Arrays plain(2500, 1, 9), beside(2500, 1, 9);
  plain.take_step(isa, rule, 1);
  gsel_optimizer_step s = beside.step(rule, 1, 0, 2500);
  s.param16 = beside.rounded.data() + 1;
  s.param16_dtype = dtype;
  gsel::host::elementwise_step(isa, s);
  assert_true(same(plain.param, beside.param));
  for (size_t i = 1; i <= 2500; ++i) assert_int_equal(beside.rounded[i], T::narrow(plain.param[i]).bits);
  assert_int_equal(beside.rounded[0], 0x5555);
  assert_int_equal(beside.rounded[2501], 0x5555);
}

void parameters_of_16_bits_are_the_master_copy_rounded(void**) {
  for (const Isa isa : available())
    for (const Rule& rule : kRules) {
      check_rounded<gsel::BF16>(rule, isa, GSEL_BF16);
      check_rounded<gsel::F16>(rule, isa, GSEL_F16);
    }
}

template <class T>
void check_casts(Isa isa) {
  std::vector<T> small(65536 + 5), back(small.size());
  std::vector<float> wide(small.size());
  for (size_t i = 0; i < small.size(); ++i) small[i] = {static_cast<uint16_t>(i)};
  gsel::host::widen(isa, wide.data() + 1, small.data() + 1, small.size() - 1);
  for (size_t i = 1; i < small.size(); ++i) assert_int_equal(gsel::bits_of(wide[i]), gsel::bits_of(small[i].widen()));
  gsel::host::narrow(isa, back.data() + 1, wide.data() + 1, small.size() - 1);
  for (size_t i = 1; i < small.size(); ++i) assert_int_equal(back[i].bits, T::narrow(wide[i]).bits);
  uint64_t state = 3;
  for (float& x : wide) x = gsel::float_of(static_cast<uint32_t>(next_random(state)));
  gsel::host::narrow(isa, back.data(), wide.data(), wide.size());
  for (size_t i = 0; i < wide.size(); ++i) assert_int_equal(back[i].bits, T::narrow(wide[i]).bits);
}

void casts_give_the_bits_of_their_definition(void**) {
  for (const Isa isa : available()) {
    check_casts<gsel::F16>(isa);
    check_casts<gsel::BF16>(isa);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_rule_follows_its_formula),
      cmocka_unit_test(no_cut_and_no_instruction_set_changes_a_bit),
      cmocka_unit_test(parameters_of_16_bits_are_the_master_copy_rounded),
      cmocka_unit_test(casts_give_the_bits_of_their_definition),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
