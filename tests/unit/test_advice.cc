// unit/test_advice.cc: what strategies advise: settings that change nothing are told with their places, changes that
// need less memory are tried in order; and a strategy that gives no advice is served as it was.
#include "base/error.h"
#include "plugin/registry.h"
#include "support/check.h"
#include "support/made_model.h"
#include "train/compile/pass.h"
#include "train/state/budget.h"

namespace {

using namespace gsel;

// ---- strategies of the program ----

std::vector<gsel_status> answers;  // of the suggestions that a plugin made

void suggest(const gsel_pass_api_v1* api, gsel_pass* pass, std::vector<gsel_setting> settings, const char* reason,
             uint32_t flags = 0) {
  gsel_suggestion suggestion{};
  suggestion.struct_size = sizeof suggestion;
  suggestion.flags = flags;
  suggestion.settings = settings.data();
  suggestion.n_settings = static_cast<int32_t>(settings.size());
  suggestion.reason = reason;
  answers.push_back(api->suggest(pass, &suggestion));
}

gsel_status compile(const gsel_host_v1*, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis, gsel_error**) {
  suggest(api, pass, {{"level", nullptr}}, "is not asked for");
  return GSEL_OK;
}

gsel_status advise(const gsel_host_v1*, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis, int32_t topic,
                   gsel_error**) {
  answers.clear();
  if (topic == GSEL_ADVICE_IDLE) {
    suggest(api, pass, {{"level", nullptr}}, "changes nothing:\nset width");
    suggest(api, pass, {{"width", nullptr}}, "stands in no file");
    suggest(api, pass, {{"plugin", nullptr}}, "has nothing to do");
  }
  if (topic != GSEL_ADVICE_MEMORY) return GSEL_OK;
  const bool alone = api->axis_size(pass, axis) == 1;
  suggest(api, pass, {{"level", "2"}, {"mode", "thin"}}, alone ? "level 2" : "level 2 of several");
  suggest(api, pass, {{"no.such.key.of.a.section.but.too.long.a.path", "1"}}, "nothing that a file can say");
  suggest(api, pass, {{"level", "3"}}, "level 3, offloaded", GSEL_SUGGESTION_OFFLOADS);
  suggest(api, pass, {{"plugin", "other"}, {"depth", "1"}}, "another strategy, offloaded", GSEL_SUGGESTION_OFFLOADS);
  return GSEL_OK;
}

gsel_status advise_wrongly(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis, int32_t,
                           gsel_error** err) {
  answers.clear();
  suggest(api, pass, {{"level", "1"}}, nullptr);
  suggest(api, pass, {}, "no settings");
  suggest(api, pass, {{nullptr, "1"}}, "no key");
  suggest(api, pass, {{"level", "1"}}, "an unknown flag", 1u << 31);
  answers.push_back(api->suggest(pass, nullptr));
  *err = host->error_new(GSEL_ERR_CONFIG, "no advice today");
  return GSEL_ERR_CONFIG;
}

const gsel_option_v1 options[] = {
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "level", "how far", 0, 9, "0"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "width", "how wide", 0, 9, "0"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "mode", "how", 0, 0, ""},
};

using Advise = decltype(gsel_strategy_v1::advise);
void add_strategy(const char* name, Advise give) {
  static std::deque<gsel_strategy_v1> tables;
  tables.push_back({sizeof(gsel_strategy_v1), 1u << GSEL_AXIS_DATA, options, 3, 0, compile, give});
  static std::deque<gsel_plugin_v1> plugins;
  plugins.push_back({sizeof(gsel_plugin_v1), 0, GSEL_PLUGIN_ABI_MAJOR, GSEL_PLUGIN_ABI_MINOR, GSEL_PLUGIN_STRATEGY, 0,
                     name, "1", "", &tables.back(), nullptr});
  register_plugin(plugins.back());
}

int add_strategies(void**) {
  add_strategy("adviser", advise);
  add_strategy("mute", nullptr);
  add_strategy("wrong", advise_wrongly);
  return 0;
}

// ---- idle settings ----

std::vector<std::string> idle(const std::string& text) {
  const auto model = made::chain({8, 8});
  const Config config = made::config(text);
  const Compiler compiler(*model, config, made::data_mesh(1));
  return idle_settings(compiler, *model, compiler.compile(0).program);
}

void settings_that_a_strategy_calls_idle_are_told_where_they_stand(void**) {
  const std::vector<std::string> lines = idle("[strategy.data]\nplugin = \"adviser\"\nlevel = 4\n");
  assert_int_equal(lines.size(), 2);
  assert_string_equal(lines[0].c_str(), "test.toml:3: strategy.data.level = 4 changes nothing: set width");
  assert_string_equal(lines[1].c_str(), "test.toml:2: strategy.data.plugin = \"adviser\" has nothing to do");
}

void a_strategy_without_advice_calls_nothing_idle(void**) {
  assert_int_equal(idle("[strategy.data]\nplugin = \"mute\"\nlevel = 4\n").size(), 0);
}

void a_suggestion_is_taken_in_advise_alone(void**) {
  answers.clear();
  const auto model = made::chain({8});
  const Config config = made::config("[strategy.data]\nplugin = \"mute\"\n");
  Compiler(*model, config, made::data_mesh(1)).compile(0);
  assert_int_equal(answers.size(), 1);
  assert_int_equal(answers[0], GSEL_ERR_STATE);
}

void advice_that_says_nothing_or_fails_is_refused(void**) {
  const auto model = made::chain({8});
  const Config config = made::config("[strategy.data]\nplugin = \"wrong\"\n");
  const Compiler compiler(*model, config, made::data_mesh(1));
  try {
    compiler.advise(GSEL_AXIS_DATA, GSEL_ADVICE_MEMORY, 0);
    fail_msg("an error of the plugin is lost");
  } catch (const Error& e) {
    assert_string_equal(e.what(), "plugin \"wrong\" could not give advice on rank 0's program");
    assert_string_equal(e.cause()->what(), "no advice today");
  }
  assert_int_equal(answers.size(), 5);
  for (const gsel_status answer : answers) assert_int_equal(answer, GSEL_ERR_ARG);
  assert_int_equal(idle("[strategy.data]\nplugin = \"wrong\"\n").size(), 1);
}

// ---- memory ----

std::string shown(const Config& config) {
  std::string text = config.strategy[GSEL_AXIS_DATA] ? config.strategy[GSEL_AXIS_DATA]->plugin : "";
  if (config.strategy[GSEL_AXIS_DATA])
    for (const auto& [key, value] : config.strategy[GSEL_AXIS_DATA]->options)
      text += fmt::format(" {}={}", key, value.shown());
  if (config.train.recompute == "all") text += " recompute";
  if (config.train.microbatch) text += fmt::format(" {}", config.train.microbatch);
  return text;
}

// The configurations that are tried, and what is said in the end; the one that fits is `fitting`.
std::pair<std::vector<std::string>, std::string> tried(const std::string& section, int32_t ranks,
                                                       const std::string& fitting) {
  const auto model = made::chain({8, 8});
  const Config config = made::config("[train]\nmemory_bytes = 1000\nbatch = 4\n" + section);
  const Mesh mesh = made::data_mesh(ranks);
  const Compiler compiler(*model, config, mesh);
  auto needing = [](uint64_t bytes) {
    RankNeed need;
    need.parts[0] = bytes;
    return need;
  };
  std::vector<std::string> all;
  try {
    check_budget(
        config, Budget{static_cast<uint64_t>(config.train.memory_bytes)}, compiler.compile(0).program, needing(5000),
        [&] { return compiler.advise(GSEL_AXIS_DATA, GSEL_ADVICE_MEMORY, 0); },
        [&](const Config& other) -> std::optional<RankNeed> {
          all.push_back(shown(other));
          return needing(all.back() == fitting ? 900 : 4000);
        });
  } catch (const Error& e) {
    return {all, e.message()};
  }
  fail_msg("5000 bytes fit 1000");
  return {};
}

void expect_end(const std::string& text, const std::string& end) {
  if (!text.ends_with(end)) fail_msg("expected \"%s\" at the end of:\n%s", end.c_str(), text.c_str());
}

void expect_lines(const std::vector<std::string>& lines, const std::vector<std::string>& expected) {
  for (size_t i = 0; i < std::max(lines.size(), expected.size()); ++i)
    if (i >= lines.size() || i >= expected.size() || lines[i] != expected[i])
      fail_msg("%zu: expected \"%s\", got \"%s\"", i, i < expected.size() ? expected[i].c_str() : "(nothing more)",
               i < lines.size() ? lines[i].c_str() : "(nothing more)");
}

void suggestions_are_tried_in_order_with_changes_of_the_core_between(void**) {
  const auto [all, text] = tried("[strategy.data]\nplugin = \"adviser\"\nwidth = 5\n", 1, "");
  expect_lines(
      all, {"adviser level=2 mode=\"thin\" width=5", "adviser width=5 recompute", "adviser width=5 2",
            "adviser width=5 1", "adviser level=2 mode=\"thin\" width=5 recompute",
            "adviser level=2 mode=\"thin\" width=5 recompute 2", "adviser level=2 mode=\"thin\" width=5 recompute 1",
            "adviser level=3 width=5", "adviser level=3 width=5 recompute", "adviser level=3 width=5 recompute 2",
            "adviser level=3 width=5 recompute 1", "other depth=1", "other depth=1 recompute",
            "other depth=1 recompute 2", "other depth=1 recompute 1"});
  expect_end(text, "\nnothing that was tried would fit; the least: level 2 needs 3.9 KiB of 1000 bytes");
}

void the_first_that_fits_is_named_with_the_lines_to_write(void**) {
  const char* const section = "[strategy.data]\nplugin = \"adviser\"\n";
  const auto two = tried(section, 1, "adviser level=2 mode=\"thin\"");
  assert_int_equal(two.first.size(), 1);
  expect_end(two.second,
             "\nlevel 2 needs 900 bytes of 1000 bytes; in gsel.toml: [strategy.data] level = 2, mode = \"thin\"");
  expect_end(tried(section, 1, "other depth=1 recompute").second,
             "\nanother strategy, offloaded, recomputing all layers needs 900 bytes of 1000 bytes; in gsel.toml: "
             "[strategy.data] plugin = \"other\", depth = 1; [train] recompute = \"all\"");
  expect_end(tried(section, 2, "").second, "the least: level 2 of several needs 3.9 KiB of 1000 bytes");
}

// One, and none where the axis has one rank and no section.
void in_place_of_a_strategy_without_advice_the_default_one_is_asked(void**) {
  for (const char* section : {"[strategy.data]\nplugin = \"mute\"\nlevel = 1\n", ""}) {
    const auto [all, text] = tried(section, 2, "zero stage=2");
    expect_lines(all, {"zero stage=1", "zero stage=2"});
    expect_end(text,
               "\nZeRO stage 2 on 2 ranks needs 900 bytes of 1000 bytes; in gsel.toml: [strategy.data] plugin = "
               "\"zero\", stage = 2");
  }
  expect_end(tried("", 1, "zero offload=\"state\" stage=3").second,
             "\nZeRO stage 3 on 1 rank with optimizer state in offload memory needs 900 bytes of 1000 bytes; in "
             "gsel.toml: [strategy.data] plugin = \"zero\", stage = 3, offload = \"state\"");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(settings_that_a_strategy_calls_idle_are_told_where_they_stand),
      cmocka_unit_test(a_strategy_without_advice_calls_nothing_idle),
      cmocka_unit_test(a_suggestion_is_taken_in_advise_alone),
      cmocka_unit_test(advice_that_says_nothing_or_fails_is_refused),
      cmocka_unit_test(suggestions_are_tried_in_order_with_changes_of_the_core_between),
      cmocka_unit_test(the_first_that_fits_is_named_with_the_lines_to_write),
      cmocka_unit_test(in_place_of_a_strategy_without_advice_the_default_one_is_asked),
  };
  return cmocka_run_group_tests(tests, add_strategies, nullptr);
}
