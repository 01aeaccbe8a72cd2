// api/schedule.cc: gsel/schedule.h.
#include "schedule/schedule.h"

#include <cmath>
#include <utility>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "schedule/simulate.h"

struct gsel_schedule {
  explicit gsel_schedule(gsel::Schedule schedule) : impl(std::move(schedule)) {}

  const gsel::Schedule impl;
  gsel::LazyText text;
};

struct gsel_simulation {
  gsel::Simulation impl;
  gsel::LazyText json = {};
};

namespace {

void check_time(double time, const std::string& name) {
  if (!std::isfinite(time) || time < 0) gsel::fail(GSEL_ERR_ARG, "{} is {}; a time is a number from 0", name, time);
}

std::vector<gsel::StageTimes> times_of_stages(const gsel::Schedule& schedule, const gsel_schedule_times& times) {
  if (!times.stage_times) {
    check_time(times.forward, "forward");
    check_time(times.backward_input, "backward_input");
    check_time(times.backward_weight, "backward_weight");
    return gsel::equal_stages(schedule, {times.forward, times.backward_input, times.backward_weight});
  }
  std::vector<gsel::StageTimes> stages;
  const double* of = times.stage_times;
  for (int32_t i = 0; i < 3 * schedule.n_stages(); ++i) check_time(of[i], fmt::format("stage_times[{}]", i));
  for (int32_t i = 0; i < schedule.n_stages(); ++i, of += 3) stages.push_back({of[0], of[1], of[2]});
  return stages;
}

gsel_schedule_times unit_times() {
  gsel_schedule_times times = GSEL_SCHEDULE_TIMES_INIT;
  times.forward = times.backward_input = times.backward_weight = 1;
  return times;
}

const std::vector<gsel_action>* row_of(const gsel_schedule* schedule, int32_t rank) {
  if (!schedule || rank < 0 || rank >= schedule->impl.n_ranks()) return nullptr;
  return &schedule->impl.rows[static_cast<size_t>(rank)];
}

}  // namespace

extern "C" {

gsel_status gsel_schedule_create(gsel_str name, int32_t ranks, int32_t microbatches, int32_t chunks,
                                 gsel_schedule** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_schedule(gsel::make_schedule(gsel::view(name), ranks, microbatches, chunks));
  });
}

gsel_status gsel_schedule_parse(gsel_str text, gsel_str name, gsel_schedule** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_schedule(gsel::parse_schedule(gsel::view(text), gsel::text(name)));
  });
}

gsel_str gsel_schedule_text(const gsel_schedule* schedule) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    return gsel::required(schedule, "schedule").text.get([&] { return gsel::to_text(schedule->impl); });
  });
}

int32_t gsel_schedule_ranks(const gsel_schedule* schedule) {
  return schedule ? schedule->impl.n_ranks() : 0;
}

int32_t gsel_schedule_stages(const gsel_schedule* schedule) {
  return schedule ? schedule->impl.n_stages() : 0;
}

int32_t gsel_schedule_microbatches(const gsel_schedule* schedule) {
  return schedule ? schedule->impl.n_microbatches : 0;
}

int32_t gsel_schedule_rank_of(const gsel_schedule* schedule, int32_t stage) {
  if (!schedule) return 0;
  return stage < 0 || stage >= schedule->impl.n_stages() ? -1 : schedule->impl.rank_of[static_cast<size_t>(stage)];
}

int32_t gsel_schedule_length(const gsel_schedule* schedule, int32_t rank) {
  const auto* row = row_of(schedule, rank);
  return row ? static_cast<int32_t>(row->size()) : 0;
}

gsel_status gsel_schedule_action(const gsel_schedule* schedule, int32_t rank, int32_t i, gsel_action* out,
                                 gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(schedule, "schedule");
    const auto* row = row_of(schedule, rank);
    if (!row)
      gsel::fail(GSEL_ERR_ARG, "rank {} was asked for; the schedule has {}", rank,
                 gsel::with_noun(schedule->impl.n_ranks(), "rank"));
    if (i < 0 || static_cast<size_t>(i) >= row->size())
      gsel::fail(GSEL_ERR_ARG, "action {} was asked for; rank {} has {}", i, rank, row->size());
    gsel::required(out, "out") = (*row)[static_cast<size_t>(i)];
  });
}

void gsel_schedule_times_init(gsel_schedule_times* times, size_t struct_size) {
  gsel::init_struct(times, struct_size);
}

void gsel_simulation_report_init(gsel_simulation_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}

gsel_status gsel_schedule_simulate(const gsel_schedule* schedule, const gsel_schedule_times* times,
                                   gsel_simulation** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel::Schedule& impl = gsel::required(schedule, "schedule").impl;
    const gsel_schedule_times given = times ? gsel::read_struct(times, "gsel_schedule_times") : unit_times();
    check_time(given.hop, "hop");
    gsel::Simulation simulation = gsel::simulate(impl, times_of_stages(impl, given), given.hop);
    if (!std::isfinite(simulation.makespan) || !std::isfinite(simulation.ideal) ||
        !std::isfinite(simulation.bubble_of_ideal()))
      gsel::fail(GSEL_ERR_ARG, "the times are too large, or too far apart, to be added up as doubles");
    *out = new gsel_simulation{std::move(simulation)};
  });
}

gsel_status gsel_simulation_get(const gsel_simulation* simulation, gsel_simulation_report* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel::Simulation& found = gsel::required(simulation, "simulation").impl;
    gsel_simulation_report report = GSEL_SIMULATION_REPORT_INIT;
    report.makespan = found.makespan;
    report.ideal = found.ideal;
    report.bubble_of_makespan = found.bubble_of_makespan();
    report.bubble_of_ideal = found.bubble_of_ideal();
    report.longest_rank_span = found.longest_rank_span;
    gsel::write_struct(out, report, "gsel_simulation_report");
  });
}

gsel_str gsel_simulation_json(const gsel_simulation* simulation) {
  return gsel::query(gsel_str{nullptr, 0}, [&] {
    return gsel::required(simulation, "simulation").json.get([&] { return gsel::to_json(simulation->impl); });
  });
}

void gsel_simulation_free(gsel_simulation* simulation) {
  delete simulation;
}

void gsel_schedule_free(gsel_schedule* schedule) {
  delete schedule;
}

}  // extern "C"
