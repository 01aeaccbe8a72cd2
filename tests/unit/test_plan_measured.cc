// Measured machines: as JSON and back; what they say of programs; and the measuring itself, whose times nobody can know
// beforehand and whose shape everybody can.
#include <unistd.h>

#include <cmath>

#include "api/handles.h"
#include "plan/finalist.h"
#include "plan/measure.h"
#include "support/exact_model.h"
#include "support/ranks.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

void expect(const char* what, double got, double expected) {
  if (std::abs(got - expected) <= 1e-12 * std::max(1.0, std::abs(expected))) return;
  fail_msg("%s: expected %.17g, got %.17g", what, expected, got);
}

void test_curves_are_straight_between_points_and_in_proportion_beyond(void**) {
  const Curve curve{{{2, 10}, {4, 14}, {8, 40}}};
  expect("below", curve.at(1), 10);
  expect("at a point", curve.at(4), 14);
  expect("between", curve.at(3), 12);
  expect("between others", curve.at(6), 27);
  expect("beyond", curve.at(16), 80);
  expect("one point", Curve{{{8, 4}}}.at(2), 1);
  expect("none", Curve{}.at(2), 0);
}

Measured made_up() {
  Measured m;
  m.layers["fc"][Measured::call_of(GSEL_FORWARD)] = {{{1, 0.5}, {8, 3}}};
  m.layers["fc"][Measured::call_of(GSEL_BACKWARD_INPUT)] = {{{8, 4}}};
  m.layers["fc"][Measured::call_of(GSEL_BACKWARD_WEIGHT)] = {{{8, 0.1}}};
  m.inputs["tokens"] = {{{8, 1e-6}}};
  m.optimizer = {{{1000, 1e-3}}};
  m.norm = {{{1000, 1e-4}}};
  m.step_s = 1.0 / 3;
  m.wake_s = 7e-5;
  m.copy_byte_s = 1e-10;
  m.throughput = {1, 1.9};
  m.links[{2, GSEL_COLLECTIVE_ALLREDUCE}] = {{{64, 1e-6}, {4096, 2e-6}}};
  m.links[{4, GSEL_COLLECTIVE_ALLREDUCE}] = {{{64, 3e-6}}};
  m.links[{2, GSEL_COLLECTIVE_SEND}] = {{{100, 5e-6}}};
  return m;
}

void test_a_measured_machine_comes_back_from_its_json(void**) {
  const Measured m = made_up();
  assert_true(read_measured(to_json(m), "test") == m);
}

void refuse(std::string json, const char* part) {
  try {
    read_measured(json, "machine.json");
  } catch (const Error& e) {
    if (e.message().find(part) == std::string::npos) fail_msg("expected \"%s\", got \"%s\"", part, e.message().c_str());
    return;
  }
  fail_msg("%s was read", json.c_str());
}

void test_what_is_no_measured_machine_is_refused(void**) {
  const std::string good = to_json(made_up());
  const auto with = [&](const char* from, const char* to) {
    std::string text = good;
    const size_t at = text.find(from);
    assert_true(at != std::string::npos);
    return text.replace(at, strlen(from), to);
  };
  refuse("{", "machine.json");
  refuse(with("[8.0,4.0]", "[8.0,-4.0]"), "backward_input");
  refuse(with("[8.0,4.0]", "[8.0]"), "backward_input");
  refuse(with("\"throughput\":[1.0", "\"throughput\":[0.0"), "throughput");
  refuse(with("\"step_s\"", "\"other\""), "other");
  refuse(with("[64.0,1e-06]", "[4096.0,1e-06]"), "seconds");
}

Program one_layer(Shard shard) {
  Program p;
  p.mesh.size = {2, 2, 2, 1};
  p.params = {{"w", 500}, {"b", 10}};
  p.params[0].shard = shard;
  p.values = {{"x", 4}, {"y", 4}, {"tokens", 1}};
  p.layers.resize(1);
  p.layers[0].name = "fc";
  p.layers[0].inputs = {0}, p.layers[0].outputs = {1}, p.layers[0].params = {0, 1};
  p.microbatches = {{0, 4}, {4, 0}};
  p.buckets.resize(1);
  p.buckets[0].params = {0};
  return p;
}

void test_a_rank_takes_its_part_of_a_layer(void**) {
  const Measured m = made_up();
  const MeasuredDurations durations(m);
  const Program whole = one_layer({}), half = one_layer({0, 1, 5, 10, 10});
  gsel_instr instr = make_instr(GSEL_BACKWARD_INPUT);
  instr.layer = instr.microbatch = 0;
  expect("part of the whole", share_of_work(whole, whole.layers[0]), 1);
  expect("part of a half", share_of_work(half, half.layers[0]), 0.5);
  expect("whole", durations.compute(whole, instr), 2);
  expect("half", durations.compute(half, instr), 1);
  instr.kind = GSEL_FORWARD;
  expect("forward of a half", durations.compute(half, instr), 0.5 + 2.5 / 7);
  instr.microbatch = 1;
  expect("no samples", durations.compute(whole, instr), 0);
  gsel_instr step = make_instr(GSEL_INSTR_STEP);
  step.bucket = 0;
  expect("optimizer", durations.compute(whole, step), 0.5e-3);
  expect("norm", durations.compute(whole, make_instr(GSEL_INSTR_NORM)), 0.5e-4);
}

void test_a_redistribution_packs_what_it_sends(void**) {
  const Measured m = made_up();
  const MeasuredDurations durations(m);
  Program p = one_layer({});
  p.layers[0].redistributes = true;
  p.layers[0].params.clear();
  p.values[0].sample_bytes = 100, p.values[0].placement = Placement::shard;
  p.values[1].sample_bytes = 200, p.values[1].placement = Placement::replicate;
  gsel_instr instr = make_instr(GSEL_FORWARD);
  instr.layer = instr.microbatch = 0;
  expect("allgather: the whole", durations.compute(p, instr), 800 * 1e-10);
  p.values[1].sample_bytes = 100, p.values[1].placement = Placement::shard;
  expect("alltoall: both parts", durations.compute(p, instr), 800 * 1e-10);
  p.values[0].placement = Placement::partial, p.values[1].placement = Placement::replicate;
  expect("allreduce: in place", durations.compute(p, instr), 0);
}

void test_calls_take_the_work_of_their_ranks(void**) {
  const Measured m = made_up();
  const MeasuredDurations durations(m);
  Program p = one_layer({});
  gsel_instr reduce = make_instr(GSEL_INSTR_ALLREDUCE);
  reduce.axis = GSEL_AXIS_DATA;
  // Measured while both were at it, which got 1.9 done; so each did 0.95 of the time's work.
  expect("two ranks", durations.exchange(p, reduce, GSEL_AXIS_DATA, 1, 4096).work, 2e-6 * 0.95);
  expect("two calls", durations.exchange(p, reduce, GSEL_AXIS_DATA, 2, 128).work, 2e-6 * 0.95);
  p.mesh.size = {1, 8, 1, 1};
  expect("more ranks than were measured", durations.exchange(p, reduce, GSEL_AXIS_DATA, 1, 64).work, 3e-6 * 1.9 / 8);
  expect("message, and four ranks to each core", durations.message(p, 1, 200).wire, 4e-5);
  p.mesh.size = {2, 1, 1, 1};
  expect("message, and a core to each rank", durations.message(p, 1, 200).wire, 1e-5);
  expect("wake", durations.wake().takes, 7e-5);
  const Hosts hosts = durations.hosts(3);
  assert_int_equal(hosts.of_program.size(), 3);
  assert_true(hosts.throughput == m.throughput);
}

// ---- measuring ---------------------------------------------------------------------------------------------------

struct Job {
  Measured of_rank[3];
};

void measure_here(rank_run* run) {
  auto* job = static_cast<Job*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  gsel_model* model = nullptr;
  exact_model numbers{};
  numbers.fail_at_step = numbers.overflow_at_step = -1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, exact_describe(model, &numbers, &err), err);
  job->of_rank[run->rank] = measure(comm->impl, model->impl, {exact_data, nullptr},
                                    parse_config("[train]\nclip_norm = 1.0\n", "test"), {{1, 2, 4}, 0.02});
  gsel_model_free(model);
  gsel_comm_free(comm);
}

void test_every_layer_and_link_is_measured_and_all_ranks_have_the_same(void**) {
  Job job;
  as_threads(3, measure_here, &job);
  const Measured& m = job.of_rank[0];
  assert_true(m == job.of_rank[1] && m == job.of_rank[2]);
  assert_true(!m.layers.empty() && !m.inputs.empty() && m.step_s >= 0 && m.wake_s > 0 && m.copy_byte_s > 0);
  for (const auto& [name, calls] : m.layers) {
    assert_int_equal(calls[Measured::call_of(GSEL_FORWARD)].points.size(), 3);
    for (const Curve& curve : calls)
      for (size_t i = 0; i < curve.points.size(); ++i) {
        assert_true(curve.points[i].second > 0);
        assert_true(i == 0 || curve.points[i].second >= curve.points[i - 1].second);
      }
  }
  assert_true(m.optimizer.at(100) > 0 && m.norm.at(100) > 0);
  for (int32_t ranks : {2, 3})
    for (gsel_collective_kind kind : {GSEL_COLLECTIVE_ALLREDUCE, GSEL_COLLECTIVE_ALLGATHER, GSEL_COLLECTIVE_ALLTOALL}) {
      const auto found = m.links.find({ranks, kind});
      assert_true(found != m.links.end() && found->second.points.size() > 2);
    }
  assert_true(m.links.contains({2, GSEL_COLLECTIVE_SEND}));
  assert_true(m.throughput.size() >= 1 && m.throughput[0] == 1);
}

// ---- the time that it takes ----------------------------------------------------------------------------------------

constexpr double kSlowStep = 0.04, kBound = 0.6;

struct SlowJob {
  int32_t steps_of_first = 0;
};

void count_slow_step(void* steps) {
  usleep(static_cast<useconds_t>(kSlowStep * 1e6));
  if (steps) ++*static_cast<int32_t*>(steps);
}

void measure_slowly(rank_run* run) {
  auto* job = static_cast<SlowJob*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  gsel_model* model = nullptr;
  exact_model numbers{};
  numbers.fail_at_step = numbers.overflow_at_step = -1;
  numbers.in_last_backward = count_slow_step;
  numbers.last_backward_user_data = run->rank == 0 ? &job->steps_of_first : nullptr;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, exact_describe(model, &numbers, &err), err);
  measure(comm->impl, model->impl, {exact_data, nullptr}, parse_config("[train]\n", "test"), {{1, 2, 4}, kBound});
  gsel_model_free(model);
  gsel_comm_free(comm);
}

// Links have a quarter of the time; each slow step takes its time at least, so that a loaded machine makes fewer.
void test_steps_end_within_their_share_of_the_time(void**) {
  SlowJob job;
  as_threads(2, measure_slowly, &job);
  assert_true(job.steps_of_first >= 6);
  if (job.steps_of_first * kSlowStep > kBound * 0.75)
    fail_msg("%d steps of %g s do not end within three quarters of %g s", job.steps_of_first, kSlowStep, kBound);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_curves_are_straight_between_points_and_in_proportion_beyond),
      cmocka_unit_test(test_a_measured_machine_comes_back_from_its_json),
      cmocka_unit_test(test_what_is_no_measured_machine_is_refused),
      cmocka_unit_test(test_a_rank_takes_its_part_of_a_layer),
      cmocka_unit_test(test_a_redistribution_packs_what_it_sends),
      cmocka_unit_test(test_calls_take_the_work_of_their_ranks),
      cmocka_unit_test(test_every_layer_and_link_is_measured_and_all_ranks_have_the_same),
      cmocka_unit_test(test_steps_end_within_their_share_of_the_time),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
