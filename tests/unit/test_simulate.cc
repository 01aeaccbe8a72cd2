// Simulations against closed forms: bubble, activations held and exposed latency of every schedule that has them, over
// many shapes and ratios of forward to the halves of backward; figures where there are none.
#include <cmath>

#include "schedule/simulate.h"
#include "support/check.h"

namespace {

using namespace gsel;

struct Shape {
  int32_t p, m;
};
struct Ratio {
  double f, i, w;
};

// The first three are those that papers show.
constexpr Shape kShapes[] = {{4, 8}, {4, 16}, {8, 32}, {2, 4}, {3, 6}, {3, 9}, {5, 10}, {6, 24}, {16, 64}};
constexpr Ratio kRatios[] = {{1, 1, 1}, {3, 4, 2}, {2, 3, 1}, {1, 2, 1}, {4, 4, 3}, {5, 9, 0}, {1, 1, 2}, {2, 1, 4}};

constexpr double kShortHop = 1.0 / 1024;

struct Case {
  const char* name;
  Shape shape;
  int32_t v;
  Ratio t;
  Simulation free;  // no hop
  // What a hop adds to the makespan and to the longest span of a rank, in hops, which are short beside actions.
  double latency = 0, span_latency = 0;

  double work() const { return shape.m * (t.f + t.i + t.w); }
  double bubble() const { return free.makespan - work(); }
  double span_bubble() const { return free.longest_rank_span - work(); }
};

Simulation simulate_ratio(const Schedule& schedule, const Ratio& t, double hop) {
  return simulate(schedule, equal_stages(schedule, {t.f, t.i, t.w}), hop);
}

void expect(const Case& c, const char* what, double got, double expected) {
  if (std::abs(got - expected) <= 1e-9 * std::max(1.0, c.work())) return;
  fail_msg("%s, %d stages of %d ranks, %d micro-batches, F %g I %g W %g: %s: expected %.17g, got %.17g", c.name,
           c.v * c.shape.p, c.shape.p, c.shape.m, c.t.f, c.t.i, c.t.w, what, expected, got);
}

template <class Visit>
void for_every_case(const char* name, int32_t v, Visit&& visit) {
  for (const Shape& shape : kShapes)
    for (const Ratio& t : kRatios) {
      const Schedule schedule = make_schedule(name, shape.p, shape.m, v);
      Case c{name, shape, v, t, simulate_ratio(schedule, t, 0)};
      const Simulation with_hops = simulate_ratio(schedule, t, kShortHop);
      c.latency = (with_hops.makespan - c.free.makespan) / kShortHop;
      c.span_latency = (with_hops.longest_rank_span - c.free.longest_rank_span) / kShortHop;
      expect(c, "ideal", c.free.ideal, c.work());
      visit(c);
    }
}

void test_naive_is_one_rank_after_the_other(void**) {
  for_every_case("naive", 1, [](const Case& c) {
    expect(c, "makespan", c.free.makespan, c.shape.p * c.work());
    expect(c, "bubble of makespan", c.free.bubble_of_makespan(), (c.shape.p - 1.0) / c.shape.p);
    expect(c, "latency", c.latency, 2.0 * (c.shape.p - 1) * c.shape.m);
    for (double peak : c.free.peak_activations) expect(c, "peak", peak, 1);
  });
}

void test_gpipe_meets_its_closed_forms(void**) {
  for_every_case("gpipe", 1, [](const Case& c) {
    const auto& [p, m] = c.shape;
    expect(c, "bubble", c.bubble(), (p - 1) * (c.t.f + c.t.i + c.t.w));
    expect(c, "bubble of makespan", c.free.bubble_of_makespan(), (p - 1.0) / (m + p - 1));
    expect(c, "latency", c.latency, 2 * (p - 1));
    for (double peak : c.free.peak_activations) expect(c, "peak", peak, m);
  });
}

void test_1f1b_meets_its_closed_forms(void**) {
  for_every_case("1f1b", 1, [](const Case& c) {
    const auto& [p, m] = c.shape;
    expect(c, "bubble", c.bubble(), (p - 1) * (c.t.f + c.t.i + c.t.w));
    expect(c, "bubble of makespan", c.free.bubble_of_makespan(), (p - 1.0) / (m + p - 1));
    expect(c, "bubble of ideal", c.free.bubble_of_ideal(), (p - 1.0) / m);
    expect(c, "latency", c.latency, 2.0 * m * (p - 1) / p + 2 * (p - 2));
    for (int32_t r = 0; r < p; ++r) {
      expect(c, "peak", c.free.peak_activations[r], std::min(m, p - r));
      expect(c, "peak until input", c.free.peak_until_input[r], std::min(m, p - r));
    }
  });
}

void test_1f1b_holds_no_more_micro_batches_than_there_are(void**) {
  for (int32_t m = 1; m < 6; ++m) {
    const Simulation s = simulate_ratio(make_schedule("1f1b", 6, m, 0), {1, 1, 1}, 0);
    for (int32_t r = 0; r < 6; ++r) assert_true(s.peak_activations[r] == std::min(m, 6 - r));
    assert_true(s.makespan == 3.0 * (m + 5));
  }
}

void test_interleaved_1f1b_meets_its_closed_forms(void**) {
  for (int32_t v = 1; v <= 4; ++v)
    for_every_case("interleaved-1f1b", v, [v](const Case& c) {
      const auto& [p, m] = c.shape;
      expect(c, "bubble", c.bubble(), (p - 1) * (c.t.f + c.t.i + c.t.w) / v);
      expect(c, "latency", c.latency, 2 * (p * v - 1));
      for (int32_t r = 0; r < p; ++r)
        expect(c, "peak", c.free.peak_activations[r], std::min<double>(m, ((v - 1.0) * p + 2 * (p - 1 - r) + 1) / v));
    });
}

void test_zb_h1_meets_its_closed_forms(void**) {
  for_every_case("zb-h1", 1, [](const Case& c) {
    const auto& [p, m] = c.shape;
    // The weights of backward fill what they can of its wait for the input's half.
    expect(c, "bubble", c.bubble(), (p - 1) * (c.t.f + std::max(0.0, c.t.i - c.t.w)));
    if (c.t.i >= c.t.w) expect(c, "bubble as published", c.bubble(), (p - 1) * (c.t.f + c.t.i - c.t.w));
    if (c.t.i >= c.t.w && c.t.w > 0 && m >= 2 * p) expect(c, "latency", c.latency, 4 * (p - 1));
    for (int32_t r = 0; r < p; ++r) {
      expect(c, "peak", c.free.peak_activations[r], p);
      expect(c, "peak until input", c.free.peak_until_input[r], p - r);
    }
  });
}

void test_interleaved_zb_meets_its_closed_forms(void**) {
  for (int32_t v = 1; v <= 4; ++v)
    for_every_case("interleaved-zb", v, [v](const Case& c) {
      const int32_t p = c.shape.p;
      expect(c, "bubble", c.bubble(), (p - 1) * (c.t.f + std::max(0.0, c.t.i - c.t.w)) / v);
      for (double peak : c.free.peak_activations) expect(c, "peak", peak, p);
    });
}

void test_zb_h2_meets_its_closed_forms(void**) {
  for_every_case("zb-h2", 1, [](const Case& c) {
    const auto& [p, m] = c.shape;
    expect(c, "bubble of a rank's span", c.span_bubble(), (p - 1) * std::max(0.0, c.t.f + c.t.i - 2 * c.t.w));
    // Where something waits for all ends, it is that of zb-h1 at F = I = W.
    expect(c, "bubble", c.bubble(), (p - 1) * std::max(c.t.f, c.t.f + c.t.i - 2 * c.t.w));
    if (c.t.f + c.t.i >= 2 * c.t.w) expect(c, "latency of a rank's span", c.span_latency, 2 * (p - 1));
    for (int32_t r = 0; r < p; ++r) {
      expect(c, "peak", c.free.peak_activations[r], std::min(m, 2 * p - 1));
      expect(c, "peak until input", c.free.peak_until_input[r], std::min(m, 2 * (p - r) - 1));
    }
  });
}

void test_zb_v_has_no_bubble_where_all_take_equally_long(void**) {
  for_every_case("zb-v", 2, [](const Case& c) {
    const auto& [p, m] = c.shape;
    for (double peak : c.free.peak_activations) expect(c, "peak", peak, p);
    for (double peak : c.free.peak_until_input) expect(c, "peak until input", peak, p);
    if (c.t.f == c.t.i && c.t.i == c.t.w) {
      expect(c, "bubble of a rank's span", c.span_bubble(), 0);
      expect(c, "bubble with all ends waited for", c.bubble(), (p - 1) * c.t.f / 2);
    }
    if (c.t.f == 3 && p == 4) expect(c, "bubble of a rank's span at 3:4:2", c.span_bubble(), 6);
  });
}

// Its forwards and backwards are done in turn, where DualPipe merges them.
void test_dualpipe_v_has_half_a_forward_of_bubble_for_each_further_rank(void**) {
  for_every_case("dualpipe-v", 2, [](const Case& c) {
    const auto& [p, m] = c.shape;
    for (double peak : c.free.peak_activations) expect(c, "peak", peak, p + 0.5);
    if (c.t.f == c.t.i && c.t.i == c.t.w) expect(c, "bubble", c.bubble(), (p - 1) * c.t.f / 2);
    if (c.t.f == 3 && p == 4) expect(c, "bubble at 3:4:2", c.bubble(), 7.5);
    if (c.t.f == 3 && p == 8) expect(c, "bubble at 3:4:2", c.bubble(), 19.5);
  });
}

void test_messages_cross_boundaries_between_ranks_alone(void**) {
  const Simulation looping = simulate_ratio(make_schedule("interleaved-1f1b", 3, 6, 2), {1, 1, 1}, 0);
  assert_int_equal(looping.messages_forward.size(), 5);
  for (size_t i = 0; i < 5; ++i) assert_int_equal(looping.messages_forward[i] + looping.messages_backward[i], 12);
  const Simulation v = simulate_ratio(make_schedule("zb-v", 3, 6, 0), {1, 1, 1}, 0);
  for (size_t i = 0; i < 5; ++i) assert_int_equal(v.messages_forward[i], i == 2 ? 0 : 6);  // it turns on rank 2
  const Simulation alone = simulate_ratio(make_schedule("interleaved-zb", 1, 3, 4), {1, 1, 1}, 5);
  for (size_t i = 0; i < 3; ++i) assert_int_equal(alone.messages_backward[i], 0);
  assert_true(alone.makespan == 9 && alone.bubble_of_ideal() == 0);
}

void test_stages_have_times_of_their_own(void**) {
  const Schedule schedule = make_schedule("1f1b", 2, 2, 0);
  const StageTimes times[] = {{1, 2, 0}, {4, 8, 0}};
  // 0: F0 0-1, F1 1-2, B0 at 13; 1: F0 1-5, B0 5-13, F1 13-17, B1 17-25; 0: B0 13-15, B1 25-27, each after a hop.
  const Simulation s = simulate(schedule, times, 0.5);
  assert_true(s.rows[1][0].begin == 1.5 && s.rows[1][3].end == 25.5);
  assert_true(s.rows[0][2].begin == 14 && s.rows[0][3].begin == 26 && s.makespan == 28);
  assert_true(s.ideal == 24 && s.busy[0] == 6 && s.busy[1] == 24 && s.longest_rank_span == 28);
}

void test_a_simulation_of_no_time_has_no_bubble(void**) {
  const Simulation s = simulate_ratio(make_schedule("zb-v", 2, 2, 0), {0, 0, 0}, 0);
  assert_true(s.makespan == 0 && s.bubble_of_makespan() == 0 && s.bubble_of_ideal() == 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_naive_is_one_rank_after_the_other),
      cmocka_unit_test(test_gpipe_meets_its_closed_forms),
      cmocka_unit_test(test_1f1b_meets_its_closed_forms),
      cmocka_unit_test(test_1f1b_holds_no_more_micro_batches_than_there_are),
      cmocka_unit_test(test_interleaved_1f1b_meets_its_closed_forms),
      cmocka_unit_test(test_zb_h1_meets_its_closed_forms),
      cmocka_unit_test(test_interleaved_zb_meets_its_closed_forms),
      cmocka_unit_test(test_zb_h2_meets_its_closed_forms),
      cmocka_unit_test(test_zb_v_has_no_bubble_where_all_take_equally_long),
      cmocka_unit_test(test_dualpipe_v_has_half_a_forward_of_bubble_for_each_further_rank),
      cmocka_unit_test(test_messages_cross_boundaries_between_ranks_alone),
      cmocka_unit_test(test_stages_have_times_of_their_own),
      cmocka_unit_test(test_a_simulation_of_no_time_has_no_bubble),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
