// Simulations of compiled programs: of pure pipelines they are those of the schedule, to the last action; collectives,
// messages and shared processors take what their closed forms say.
#include <cmath>

#include "program/simulate/agenda.h"
#include "program/simulate/simulate_job.h"
#include "program/text/text.h"
#include "program/verify/verify.h"
#include "schedule/simulate.h"
#include "support/check.h"
#include "train/compile/exchange_programs.h"
#include "train/compile/pass.h"

namespace {

using namespace gsel;

gsel_status never(const gsel_call*, void*) {
  return GSEL_ERR_STATE;
}

// A chain of equal layers and a loss that takes no time; nor does what embeds, so that the first layer's input has a
// gradient. elems: of each layer's parameter and of its output.
class Chain {
 public:
  explicit Chain(int32_t n_layers, int64_t elems = 8, bool embeds = true) {
    int32_t x = value("x", elems, GSEL_VALUE_INPUT);
    for (int32_t l = embeds ? -1 : 0; l < n_layers; ++l) {
      gsel_param_options p = GSEL_PARAM_OPTIONS_INIT;
      const std::string name = l < 0 ? "embed" : "l" + std::to_string(l);
      p.name = {name.c_str(), GSEL_NUL};
      p.dims = &elems;
      p.n_dims = 1;
      const int32_t w = model.add_param(p), y = value(name, elems, 0);
      layer(name, {x}, {y}, {w}, l < 0 ? 0 : 1000, 0);
      x = y;
    }
    layer("loss", {x}, {value("sum", 0, GSEL_VALUE_SCALAR), value("weight", 0, GSEL_VALUE_SCALAR)}, {}, 0,
          GSEL_LAYER_LOSS);
    model.finish();
  }

  Model model;

 private:
  int32_t value(const std::string& name, int64_t elems, uint32_t flags) {
    gsel_value_options v = GSEL_VALUE_OPTIONS_INIT;
    v.name = {name.c_str(), GSEL_NUL};
    v.dims = &elems;
    v.n_dims = elems ? 1 : 0;
    v.dtype = elems ? GSEL_F32 : GSEL_F64;
    v.flags = flags;
    return model.add_value(v);
  }
  void layer(const std::string& name, std::vector<int32_t> in, std::vector<int32_t> out, std::vector<int32_t> params,
             double flop, uint32_t flags) {
    gsel_layer_options l = GSEL_LAYER_OPTIONS_INIT;
    l.name = {name.c_str(), GSEL_NUL};
    l.inputs = in.data(), l.n_inputs = static_cast<int32_t>(in.size());
    l.outputs = out.data(), l.n_outputs = static_cast<int32_t>(out.size());
    l.params = params.data(), l.n_params = static_cast<int32_t>(params.size());
    l.flop_per_sample = flop;
    l.flags = flags;
    l.forward = l.backward_input = never;
    l.backward_weight = params.empty() ? nullptr : never;
    model.add_layer(l);
  }
};

std::vector<Program> compiled(const Model& model, const std::string& toml, int32_t ranks) {
  const Config config = parse_config(toml, "test");
  const Mesh mesh{resolve_mesh(config, ranks)};
  const Compiler compiler(model, config, mesh);
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < ranks; ++rank) programs.push_back(compiler.compile(rank).program);
  place_post_validations(programs);
  const Job job = whole_job(programs);
  const int32_t transfers = enough_transfers(job);
  for (Program& p : programs) p.transfers = transfers;
  verify(whole_job(programs));
  return programs;
}

GivenDurations equal_layers(const Program& program, double f, double i, double w) {
  GivenDurations durations;
  for (const ProgramLayer& l : program.layers)
    durations.layers.push_back(l.is_loss || l.name == "embed" ? GivenDurations::OfLayer{}
                               : l.needs_backward_input       ? GivenDurations::OfLayer{f, i, w}
                                                              : GivenDurations::OfLayer{f, 0, i + w});
  return durations;
}

void expect(const std::string& what, double got, double expected) {
  if (std::abs(got - expected) <= 1e-9 * std::max(1.0, std::abs(expected))) return;
  fail_msg("%s: expected %.17g, got %.17g", what.c_str(), expected, got);
}

// First begin and last end of the layers of a stage for a micro-batch, in one direction.
InstrTimes span_of(const Program& p, const RankTimes& times, const gsel_action& action) {
  InstrTimes span{1e300, -1};
  for (size_t k = 0; k < p.step.size(); ++k) {
    const gsel_instr& instr = p.step[k];
    if (instr.layer < 0 || instr.microbatch != action.microbatch) continue;
    const ProgramLayer& layer = p.layers[static_cast<size_t>(instr.layer)];
    if (layer.stage != action.stage || layer.is_loss || layer.name == "embed") continue;
    const bool fits =
        action.kind == instr.kind ||
        (action.kind == GSEL_BACKWARD && (instr.kind == GSEL_BACKWARD_INPUT || instr.kind == GSEL_BACKWARD_WEIGHT));
    if (!fits) continue;
    span.begin = std::min(span.begin, times.instrs[k].begin);
    span.end = std::max(span.end, times.instrs[k].end);
  }
  return span;
}

// ---- pipelines ---------------------------------------------------------------------------------------------------

void test_programs_of_pipelines_take_what_their_schedules_take(void**) {
  struct Row {
    const char *schedule, *option;
    int32_t chunks;
  };
  const Row rows[] = {{"gpipe", "gpipe", 1}, {"1f1b", "1f1b", 1}, {"interleaved-1f1b", "interleaved-1f1b", 2},
                      {"zb-h1", "zb-h1", 1}, {"zb-v", "zb-v", 2}, {"naive", "naive", 1}};
  for (const Row& row : rows)
    for (const auto& [p, m] : {std::pair{2, 4}, {3, 6}, {4, 8}, {4, 16}})
      for (double hop : {0.0, 0.25}) {
        const int32_t stages = p * row.chunks;
        const Chain chain(2 * stages);
        const std::string toml = fmt::format(
            "[mesh]\npipeline = {}\ndata = 1\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\n{}"
            "[train]\nbatch = {}\nmicrobatches = {}\ngradient_norm = \"auto\"\nnon_finite = \"off\"\n",
            p, row.option, row.chunks > 1 ? fmt::format("chunks = {}\n", row.chunks) : "", 2 * m, m);
        const std::vector<Program> programs = compiled(chain.model, toml, p);
        GivenDurations durations = equal_layers(programs.front(), 1, 1.5, 0.5);
        durations.links[GSEL_AXIS_PIPELINE] = {hop, 0};
        const JobTimes times = simulate(whole_job(programs), durations);

        const Schedule schedule = make_schedule(row.schedule, p, m, row.chunks);
        const std::vector<StageTimes> stage_times(static_cast<size_t>(stages), {2, 3, 1});
        const Simulation simulation = simulate(schedule, stage_times, hop);
        const std::string what = fmt::format("{} of {} ranks, {} micro-batches, hop {}", row.schedule, p, m, hop);
        for (int32_t rank = 0; rank < p; ++rank)
          for (const TimedAction& action : simulation.rows[static_cast<size_t>(rank)]) {
            const InstrTimes span =
                span_of(programs[static_cast<size_t>(rank)], times.ranks[static_cast<size_t>(rank)], action.action);
            if (action.action.kind == GSEL_BACKWARD_WEIGHT || action.action.kind == GSEL_FORWARD ||
                action.action.kind == GSEL_BACKWARD) {
              expect(what + ": begin of " + to_text(action.action), span.begin, action.begin);
              expect(what + ": end of " + to_text(action.action), span.end, action.end);
            }
          }
        for (size_t rank = 0; rank < times.ranks.size(); ++rank)
          expect(what + ": busy", times.ranks[rank].busy_s, simulation.busy[rank]);
        if (hop == 0) expect(what + ": makespan", times.makespan, simulation.makespan);
      }
}

void test_makespans_of_pipelines_meet_their_closed_forms(void**) {
  const int32_t p = 4, m = 12;
  const double f = 2, i = 3, w = 1;
  const auto makespan = [&](const char* schedule, int32_t chunks) {
    const Chain chain(2 * p * chunks);
    const std::string toml = fmt::format(
        "[mesh]\npipeline = {}\ndata = 1\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\n{}[train]\nbatch = "
        "{}\nmicrobatches = {}\n",
        p, schedule, chunks > 1 ? fmt::format("chunks = {}\n", chunks) : "", m, m);
    const std::vector<Program> programs = compiled(chain.model, toml, p);
    const double n = 2.0 * chunks;
    return simulate(whole_job(programs), equal_layers(programs.front(), f / n, i / n, w / n)).makespan;
  };
  expect("gpipe", makespan("gpipe", 1), (m + p - 1) * (f + i + w));
  expect("1f1b", makespan("1f1b", 1), (m + p - 1) * (f + i + w));
  expect("interleaved", makespan("interleaved-1f1b", 3), m * (f + i + w) + (p - 1) * (f + i + w) / 3);
  expect("zb-h1", makespan("zb-h1", 1), m * (f + i + w) + (p - 1) * (f + i - w));
}

void test_steps_in_a_row_take_their_longest_span(void**) {
  const int32_t p = 4, m = 8;
  const Chain chain(p);
  const std::vector<Program> programs =
      compiled(chain.model,
               "[mesh]\npipeline = 4\ndata = 1\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"1f1b\"\n[train]\n"
               "batch = 8\nmicrobatches = 8\n",
               p);
  const JobTimes times = simulate(whole_job(programs), equal_layers(programs.front(), 1, 1, 1), {}, 3);
  expect("period", times.period, 3.0 * (m + p - 1));
  expect("bubble", times.bubble(), (p - 1.0) / (m + p - 1));
}

// ---- collectives -------------------------------------------------------------------------------------------------

void test_a_reduction_is_hidden_behind_backward_as_far_as_it_goes(void**) {
  const Chain chain(4, 1 << 10, false);
  const std::vector<Program> programs =
      compiled(chain.model,
               "[mesh]\ndata = 2\n[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 4096\nfirst_bucket_bytes = 4096\n"
               "[train]\nbatch = 2\n",
               2);
  GivenDurations durations = equal_layers(programs.front(), 1, 1, 1);
  // Three of the reductions are hidden, the first layer's is not. The sum of the loss is 16 bytes.
  const double loss = 16.0 / 4096;
  durations.links[GSEL_AXIS_DATA] = {0, 1.0 / 4096};
  const JobTimes times = simulate(whole_job(programs), durations);
  expect("step", times.makespan, 4 * 3 + 1 + loss);
  for (const RankTimes& t : times.ranks) {
    expect("exposed", t.exposed_s[GSEL_AXIS_DATA], 1 + loss);
    assert_int_equal(t.asynchronous.size(), 4);
  }
  // Slower than backward, each waits for the one before: begun behind the first layer that is done.
  durations.links[GSEL_AXIS_DATA] = {0, 5.0 / 4096};
  expect("slow links", simulate(whole_job(programs), durations).makespan, 4 * 1 + 2 + (4 + loss) * 5);
}

struct PerSample : GivenDurations {
  double compute(const Program& program, const gsel_instr& instr) const override {
    if (instr.layer < 0) return 0;
    const int64_t samples = program.microbatches[static_cast<size_t>(instr.microbatch)].count;
    return GivenDurations::compute(program, instr) * static_cast<double>(samples);
  }
};

void test_an_exchange_begins_when_the_last_rank_comes(void**) {
  const Chain chain(2, 8, false);
  const std::vector<Program> programs =
      compiled(chain.model, "[mesh]\ndata = 2\n[strategy.data]\nplugin = \"ddp\"\n[train]\nbatch = 3\n", 2);
  // Rank 0 has two samples, rank 1 one.
  PerSample durations;
  static_cast<GivenDurations&>(durations) = equal_layers(programs.front(), 1, 1, 1);
  const JobTimes times = simulate(whole_job(programs), durations);
  expect("slow rank", times.ranks[0].busy_s, 12);
  expect("quick rank waits", times.ranks[1].idle_s[GSEL_AXIS_DATA], 6);
  expect("step", times.makespan, 12);
}

void test_who_has_waited_long_for_others_wakes_up_first(void**) {
  const Chain chain(2, 8, false);
  const std::vector<Program> programs =
      compiled(chain.model, "[mesh]\ndata = 2\n[strategy.data]\nplugin = \"ddp\"\n[train]\nbatch = 3\n", 2);
  struct Sleepy : PerSample {
    Wake wake() const override { return {after, 0.25}; }
    double after = 0;
  } durations;
  static_cast<GivenDurations&>(durations) = equal_layers(programs.front(), 1, 1, 1);
  const JobTimes slept = simulate(whole_job(programs), durations);
  expect("the slow rank", slept.ranks[0].end, 12);
  expect("the quick one", slept.ranks[1].end, 12.25);
  durations.after = 6;  // it waits no longer
  expect("it polls", simulate(whole_job(programs), durations).makespan, 12);
}

// ---- processors --------------------------------------------------------------------------------------------------

void test_ranks_beyond_the_processors_share_them(void**) {
  const Chain chain(2, 8, false);
  for (const int32_t ranks : {1, 2, 4}) {
    const std::vector<Program> programs =
        compiled(chain.model, fmt::format("[mesh]\ndata = {0}\n[train]\nbatch = {0}\n", ranks), ranks);
    const Hosts hosts{std::vector<int32_t>(static_cast<size_t>(ranks), 0), {1, 1.6}};
    const JobTimes times = simulate(whole_job(programs), equal_layers(programs.front(), 1, 1, 1), hosts);
    expect("step", times.makespan, ranks == 1 ? 6 : 6.0 * ranks / 1.6);
  }
}

void test_tasks_under_way_go_on_at_the_same_pace(void**) {
  Processors one({1});
  one.begin(0, 2, 7);
  one.begin(1, 3, 8);  // the first has 1 left, at half the pace
  expect("first end", one.next_end(), 3);
  assert_int_equal(one.end(3), 7);
  expect("second end", one.next_end(), 5);
  assert_int_equal(one.end(5), 8);
  assert_true(one.next_end() == Processors::kNever);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_programs_of_pipelines_take_what_their_schedules_take),
      cmocka_unit_test(test_makespans_of_pipelines_meet_their_closed_forms),
      cmocka_unit_test(test_steps_in_a_row_take_their_longest_span),
      cmocka_unit_test(test_a_reduction_is_hidden_behind_backward_as_far_as_it_goes),
      cmocka_unit_test(test_an_exchange_begins_when_the_last_rank_comes),
      cmocka_unit_test(test_who_has_waited_long_for_others_wakes_up_first),
      cmocka_unit_test(test_ranks_beyond_the_processors_share_them),
      cmocka_unit_test(test_tasks_under_way_go_on_at_the_same_pace),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
