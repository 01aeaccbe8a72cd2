// The programs that pipelines compile to, without running them: the verifier accepts them for random models, schedules
// and meshes; what crosses a cut is the live set, to the byte; cuts follow costs, measured or hinted, and memory.
#include <fstream>
#include <map>

#include "program/optimistic.h"
#include "program/text/text.h"
#include "program/words/words.h"
#include "support/described.h"
#include "support/long_model.h"
#include "support/made_model.h"
#include "support/random_program.h"
#include "support/scratch.h"
#include "support/verdict.h"

namespace {

using namespace gsel;

const char* const kSchedules[] = {"naive",          "gpipe", "1f1b", "interleaved-1f1b", "zb-h1",
                                  "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"};
const char* const kData[] = {"", "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 100\nfirst_bucket_bytes = 1\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 1\nbucket_bytes = 100\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 2\n",
                             "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 50\n"};

const Model& long_one() {
  return test::described(long_describe);
}

struct Folder {
  Folder() { assert_true(make_scratch(name, sizeof name, "pipelines")); }
  ~Folder() { remove_scratch(name); }
  std::string path() const { return name; }
  char name[256];
};

struct Wanted {
  std::string schedule = "1f1b";
  int32_t pipeline = 2, microbatches = 4, data = 1;
  std::string options = {}, data_section = {}, train = {};
};

std::vector<Program> compile(const Model& model, const Wanted& w) {
  const std::string text = fmt::format(
      "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"{}\"\n{}{}[train]\nbatch = {}\nmicrobatches = {}\n{}",
      w.schedule, w.options, w.data_section, 2 * w.data * w.microbatches, w.microbatches, w.train);
  const Config config = parse_config(text, "trial.toml");
  return made::programs(model, config, Mesh{{1, w.data, w.pipeline, 1}});
}

std::vector<int32_t> first_layers(const Program& program) {
  std::vector<int32_t> result;
  for (size_t l = 0; l < program.layers.size(); ++l)
    if (program.layers[l].stage == static_cast<int32_t>(result.size())) result.push_back(static_cast<int32_t>(l));
  return result;
}

// ---- acceptance ----

void random_pipelines_are_accepted_by_the_verifier(void**) {
  const std::string mores[] = {"", "clip_norm = 1.0\n", "precision = \"fp16\"\nclip_norm = 1.0\n",
                               "recompute = \"all\"\n"};
  int accepted = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    made::Random random(seed);
    const auto model = made::random_model(random);
    Wanted w;
    w.schedule = kSchedules[random.below(std::size(kSchedules))];
    w.pipeline = static_cast<int32_t>(random.between(1, 4));
    w.microbatches = static_cast<int32_t>(random.between(1, 9));
    w.data = static_cast<int32_t>(random.between(1, 3));
    w.data_section = kData[random.below(std::size(kData))];
    w.train = mores[random.below(std::size(mores))];
    if (random.chance(30)) w.options = "balance = \"memory\"\n";
    if (random.chance(60)) w.options += "post_validate = \"on\"\n";
    std::vector<Program> programs;
    try {
      programs = compile(*model, w);
    } catch (const Error& e) {
      if (e.code() != GSEL_ERR_CONFIG) fail_msg("seed %u: %s", seed, e.what());
      continue;  // too few layers, or micro-batches that the schedule cannot divide
    }
    const std::string why = test::refusal(programs);
    if (!why.empty())
      fail_msg("seed %u, %s, %d pipeline ranks, %d micro-batches, %d data ranks\n%s%s: %s\n%s", seed,
               w.schedule.c_str(), w.pipeline, w.microbatches, w.data, w.data_section.c_str(), w.train.c_str(),
               why.c_str(), to_text(programs[0]).c_str());
    ++accepted;
  }
  print_message("  %d programs\n", accepted);
  assert_true(accepted > 150);
}

// ---- optimistic steps ----

// Micro-batches of which the first layer here has run forward before POST_VALIDATE.
int32_t forwards_before_post_validate(const Program& p) {
  int32_t n = 0, layer = -1;
  const int32_t end = post_validate_position(p);
  assert_true(end >= 0);
  for (int32_t i = 0; i < end; ++i) {
    if (p.step[i].kind != GSEL_FORWARD) continue;
    if (layer < 0) layer = p.step[i].layer;
    n += p.step[i].layer == layer;
  }
  return n;
}

// As many as the last pipeline rank, which begins last, leaves room for: one there, one more on each rank before it. So
// all ranks come to it at one time, a forward of the last rank after the step before has ended there.
void validation_comes_when_the_last_rank_has_had_a_forward(void**) {
  for (const char* schedule : {"1f1b", "zb-h1", "zb-h2"})
    for (int32_t pipeline = 2; pipeline <= 4; ++pipeline) {
      Wanted w;
      w.schedule = schedule;
      w.pipeline = pipeline;
      w.microbatches = 8;
      w.options = "post_validate = \"on\"\n";
      w.train = "clip_norm = 1.0\n";
      const std::vector<Program> programs = compile(long_one(), w);
      for (const Program& p : programs)
        if (forwards_before_post_validate(p) != pipeline - p.rank)
          fail_msg("%s, %d pipeline ranks: rank %d has %d forwards before post_validate, expected %d\n%s", schedule,
                   pipeline, p.rank, forwards_before_post_validate(p), pipeline - p.rank, to_text(p).c_str());
    }
}

// ---- bytes ----

struct Crossing {
  int64_t forward = 0, backward = 0;
  bool operator==(const Crossing&) const = default;
};

// What goes over each boundary between pipeline ranks, of one micro-batch: a message from rank a to rank b goes over
// all those between them.
std::vector<Crossing> counted(const std::vector<Program>& programs) {
  std::vector<Crossing> result(programs.size() - 1);
  for (const Program& p : programs)
    for (const gsel_instr& i : p.step) {
      if (i.kind != GSEL_INSTR_SEND || i.microbatch != 0) continue;
      const bool gradient = i.flags & GSEL_INSTR_GRADIENT;
      for (int32_t b = std::min(p.rank, i.peer); b < std::max(p.rank, i.peer); ++b)
        (gradient ? result[b].backward : result[b].forward) += p.values[i.value].sample_bytes;
    }
  return result;
}

// Values produced before the cut and read behind it; of those that need a gradient, the gradient.
std::vector<Crossing> live_sets(const Program& p) {
  std::vector<Crossing> result(p.rank_of_stage.size() - 1);
  for (size_t v = 0; v < p.values.size(); ++v) {
    if (p.values[v].is_input) continue;
    int32_t produced = -1, last = -1;
    for (const ProgramLayer& l : p.layers) {
      if (std::ranges::count(l.outputs, static_cast<int32_t>(v))) produced = l.stage;
      if (std::ranges::count(l.inputs, static_cast<int32_t>(v))) last = l.stage;
    }
    for (int32_t cut = produced; cut < last; ++cut) {
      result[cut].forward += p.values[v].sample_bytes;
      if (p.values[v].needs_gradient) result[cut].backward += p.values[v].sample_bytes;
    }
  }
  return result;
}

void what_crosses_a_cut_is_the_live_set(void**) {
  for (const char* schedule : {"naive", "gpipe", "1f1b", "zb-h1", "zb-h2"})
    for (int32_t pipeline = 2; pipeline <= 6; ++pipeline) {
      Wanted w;
      w.schedule = schedule;
      w.pipeline = pipeline;
      const std::vector<Program> programs = compile(long_one(), w);
      const std::vector<Crossing> expected = live_sets(programs[0]), got = counted(programs);
      for (size_t cut = 0; cut < got.size(); ++cut)
        if (!(got[cut] == expected[cut]))
          fail_msg("%s on %d ranks, cut %zu: %lld bytes and %lld back, expected %lld and %lld", schedule, pipeline, cut,
                   static_cast<long long>(got[cut].forward), static_cast<long long>(got[cut].backward),
                   static_cast<long long>(expected[cut].forward), static_cast<long long>(expected[cut].backward));
    }
}

// Tokens are read by embed, marks and mask: whoever has none of them is asked for none, and they are never sent.
void inputs_are_filled_where_they_are_read(void**) {
  Wanted w;
  w.pipeline = 4;
  w.options = "cuts = \"linear0, linear1, mask\"\n";
  const std::vector<Program> programs = compile(long_one(), w);
  for (const Program& p : programs) {
    int64_t filled = 0;
    for (const gsel_instr& i : p.step) {
      filled += i.kind == GSEL_INPUT;
      if (i.kind == GSEL_INSTR_SEND) assert_int_not_equal(i.value, LV_TOKENS);
    }
    assert_int_equal(filled, p.rank == 0 || p.rank == 3 ? 4 : 0);
  }
}

// ---- cuts ----

void cuts_follow_hints_and_stay_where_they_are_allowed(void**) {
  const Program p = compile(long_one(), {.pipeline = 3})[0];
  for (size_t l = 1; l < p.layers.size(); ++l) assert_in_range(p.layers[l].stage - p.layers[l - 1].stage, 0, 1);
  assert_int_equal(p.layers[LL_HEAD].stage, 2);  // head and loss alone are a third of the work
  assert_true(p.notes[0].starts_with("pp: 3 stages on 3 ranks, cut by flop_per_sample; the largest rank has "));
}

std::unique_ptr<Model> uneven(uint32_t flags_of_third) {
  return made::changed_chain({1000, 10, 10, 10, 10, 10}, 4,
                             [&](size_t l, made::LayerSpec& layer) { layer.flags = l == 2 ? flags_of_third : 0; });
}

void cuts_are_uneven_where_memory_is(void**) {
  using Firsts = std::vector<int32_t>;
  assert_true(first_layers(compile(*uneven(0), {})[0]) == Firsts({0, 4}) ||
              first_layers(compile(*uneven(0), {})[0]) == Firsts({0, 3}));
  assert_true(first_layers(compile(*uneven(0), {.options = "balance = \"memory\"\n"})[0]) == Firsts({0, 1}));
  const auto first = first_layers(compile(*uneven(GSEL_LAYER_NO_CUT_AFTER), {})[0]);
  assert_int_not_equal(first[1], 3);
}

std::string recorded(const Program& program, const std::map<int32_t, double>& seconds, bool all) {
  std::string intervals;
  for (int32_t l = 0; l < static_cast<int32_t>(program.layers.size()); ++l)
    for (const gsel_instr_kind kind : {GSEL_FORWARD, GSEL_BACKWARD}) {
      if (!all && l == 2 && kind == GSEL_BACKWARD) continue;
      gsel_instr instr = make_instr(kind);
      instr.layer = l;
      instr.microbatch = 0;
      const auto found = seconds.find(l);
      intervals += fmt::format(
          R"({}{{"position":0,"instruction":"x","text":"{}","begin_s":1.0,"end_s":{},"asynchronous":false}})",
          intervals.empty() ? "" : ",", to_text(program, instr), 1 + (found == seconds.end() ? 0.01 : found->second));
    }
  return fmt::format(R"({{"gsel":"0.1.0","steps":[{{"rank":0,"intervals":[{}]}}]}})", intervals);
}

void cuts_follow_what_was_measured(void**) {
  const Folder folder;
  const auto model = uneven(0);
  const Program program = compile(*model, {})[0];
  const std::string path = folder.path() + "/step-0.json";
  std::ofstream(path) << recorded(program, {{4, 1.0}, {5, 1.0}}, true);
  for (const std::string& costs : {path, folder.path()}) {
    const Program p = compile(*model, {.options = fmt::format("costs = \"{}\"\n", costs)})[0];
    assert_true(first_layers(p) == std::vector<int32_t>({0, 5}));
    assert_true(p.notes[0].find("cut by measured time") != std::string::npos);
  }
  std::ofstream(path) << recorded(program, {}, false);
  try {
    compile(*model, {.options = fmt::format("costs = \"{}\"\n", path)});
    fail_msg("a record without a layer's backward was taken");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_CONFIG);
    assert_non_null(strstr(e.cause()->what(), "which has no backward of layer \"l2\""));
  }
  std::string on_device = recorded(program, {}, true);
  on_device.replace(on_device.find("\"rank\""), 0, "\"on_device\":true,");
  std::ofstream(path) << on_device;
  try {
    compile(*model, {.options = fmt::format("costs = \"{}\"\n", path)});
    fail_msg("a record of a device was taken");
  } catch (const Error& e) {
    assert_non_null(strstr(e.cause()->what(), "the times are the host's"));
  }
}

// ---- schedules from files ----

void a_schedule_file_makes_the_program_of_the_named_one(void**) {
  const Folder folder;
  for (const char* name : kSchedules) {
    Wanted w;
    w.schedule = name;
    const Schedule schedule = make_schedule(name, w.pipeline, w.microbatches, 0);
    const std::string path = folder.path() + "/rows.csv";
    std::ofstream(path) << to_text(schedule);
    const std::vector<Program> named = compile(long_one(), w);
    w.options = fmt::format("schedule_file = \"{}\"\n", path);
    const std::vector<Program> read = compile(long_one(), w);
    for (size_t r = 0; r < named.size(); ++r) assert_true(equal(named[r], read[r]));
    w.microbatches = 5;
    try {
      compile(long_one(), w);
      fail_msg("a schedule of 4 micro-batches was taken for 5");
    } catch (const Error& e) {
      assert_non_null(strstr(e.cause()->what(), "set train.microbatches = 4"));
    }
  }
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_pipelines_are_accepted_by_the_verifier),
      cmocka_unit_test(validation_comes_when_the_last_rank_has_had_a_forward),
      cmocka_unit_test(what_crosses_a_cut_is_the_live_set),
      cmocka_unit_test(inputs_are_filled_where_they_are_read),
      cmocka_unit_test(cuts_follow_hints_and_stay_where_they_are_allowed),
      cmocka_unit_test(cuts_are_uneven_where_memory_is),
      cmocka_unit_test(cuts_follow_what_was_measured),
      cmocka_unit_test(a_schedule_file_makes_the_program_of_the_named_one),
  };
  return cmocka_run_group_tests_name("pipeline_strategies_programs", tests, nullptr, nullptr);
}
