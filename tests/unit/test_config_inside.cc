// test_config_inside.cc: the table of keys against the documentation and the struct it fills, and the mesh.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/config.h"
#include "base/config_keys.h"
#include "base/text.h"
#include "support/check.h"

namespace {

using gsel::Config;

std::string documentation() {
  const char* data = std::getenv("GSEL_TEST_DATA");
  assert_non_null(data);
  std::ifstream file(std::filesystem::path(data).parent_path().parent_path() / "docs/config.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void every_key_stands_in_the_documentation_as_in_the_table(void**) {
  const std::string text = documentation();
  for (const gsel::ConfigKey& key : gsel::config_keys()) {
    const bool quotes = gsel::default_value(key).type == gsel::ConfigValue::Type::text;
    const std::string row = fmt::format("| `{}` | {} | `{}{}{}` | {} |\n", key.name, gsel::expectation(key),
                                        quotes ? "\"" : "", key.default_text, quotes ? "\"" : "", key.help);
    if (text.find(row) == std::string::npos) fail_msg("docs/config.md lacks this row:\n%s", row.c_str());
  }
}

void defaults_of_the_table_are_those_of_the_struct(void**) {
  const Config plain, filled = gsel::default_config();
  assert_true(plain.select.accelerator == filled.select.accelerator && plain.select.devices == filled.select.devices &&
              plain.select.order == filled.select.order);
  assert_true(plain.comm.timeout_s == filled.comm.timeout_s);
  assert_true(plain.mesh == filled.mesh);
  const auto &a = plain.train, &b = filled.train;
  assert_true(a.optimizer == b.optimizer && a.learning_rate == b.learning_rate && a.weight_decay == b.weight_decay);
  assert_true(a.momentum == b.momentum && a.beta1 == b.beta1 && a.beta2 == b.beta2 && a.epsilon == b.epsilon);
  assert_true(a.clip_norm == b.clip_norm && a.batch == b.batch && a.microbatch == b.microbatch && a.seed == b.seed);
  assert_true(a.schedule == b.schedule && a.warmup_steps == b.warmup_steps && a.total_steps == b.total_steps &&
              a.final_learning_rate == b.final_learning_rate);
  assert_true(a.precision == b.precision && a.loss_scale == b.loss_scale &&
              a.loss_scale_initial == b.loss_scale_initial && a.loss_scale_minimum == b.loss_scale_minimum &&
              a.loss_scale_window == b.loss_scale_window && a.loss_scale_hysteresis == b.loss_scale_hysteresis);
  assert_true(a.recompute == b.recompute && a.device == b.device && a.memory_bytes == b.memory_bytes &&
              a.takes_free_memory == b.takes_free_memory && a.offload_folder == b.offload_folder &&
              a.offload_buffer_bytes == b.offload_buffer_bytes && a.lending == b.lending && a.check == b.check &&
              a.timeline == b.timeline);
}

void every_default_is_accepted_by_its_own_key(void**) {
  for (const gsel::ConfigKey& key : gsel::config_keys()) {
    const std::string wrong = gsel::objection(key, gsel::default_value(key));
    if (!wrong.empty()) fail_msg("default of %s %s", std::string(key.name).c_str(), wrong.c_str());
  }
}

void options_of_a_plugin_keep_type_text_and_place(void**) {
  const Config config = gsel::parse_config(
      "[strategy.data]\nplugin = \"zero\"\nstage = 1\n  rate = 2.0\non = false\n"
      "mode = \"x\"\n",
      "f");
  const auto& section = *config.strategy[GSEL_AXIS_DATA];
  assert_string_equal(section.plugin.c_str(), "zero");
  assert_int_equal(section.place.line, 2);
  assert_int_equal(section.options.size(), 4);
  assert_true(section.options.at("stage").type == gsel::ConfigValue::Type::integer);
  assert_true(section.options.at("rate").type == gsel::ConfigValue::Type::number);
  assert_string_equal(section.options.at("rate").text.c_str(), "2.0");
  assert_int_equal(section.options.at("rate").place.column, 3);
  assert_true(section.options.at("on").type == gsel::ConfigValue::Type::boolean);
  assert_string_equal(section.options.at("mode").place.token.c_str(), "strategy.data.mode");
  assert_false(config.strategy[GSEL_AXIS_TENSOR].has_value());
}

void check_mesh(const char* text, int32_t ranks, int32_t tensor, int32_t data, int32_t pipeline) {
  const auto sizes = gsel::resolve_mesh(gsel::parse_config(text, "f"), ranks);
  if (sizes[0] != tensor || sizes[1] != data || sizes[2] != pipeline)
    fail_msg("%s on %d ranks: expected %d %d %d, got %d %d %d", text, ranks, tensor, data, pipeline, sizes[0], sizes[1],
             sizes[2]);
}

void sizes_of_the_mesh_multiply_to_the_ranks(void**) {
  check_mesh("", 1, 1, 1, 1);
  check_mesh("", 6, 1, 6, 1);
  check_mesh("[mesh]\ntensor = 2\npipeline = 2\n", 8, 2, 2, 2);
  check_mesh("[mesh]\ntensor = \"auto\"\ndata = 2\npipeline = 2\n", 8, 2, 2, 2);
  check_mesh("[mesh]\npipeline = \"auto\"\n", 5, 1, 1, 5);
  check_mesh("[mesh]\ntensor = 2\ndata = 3\npipeline = 4\n", 24, 2, 3, 4);
}

void check_mesh_refused(const char* text, int32_t ranks, gsel_status code, const char* message) {
  try {
    gsel::resolve_mesh(gsel::parse_config(text, "f"), ranks);
  } catch (const gsel::Error& e) {
    if (e.code() == code && e.message() == message) return;
    fail_msg("expected %s\ngot %s", message, e.what());
  }
  fail_msg("%s on %d ranks was accepted", text, ranks);
}

void sizes_that_do_not_fit_say_what_would(void**) {
  check_mesh_refused("[mesh]\ntensor = 2\npipeline = 3\n", 8, GSEL_ERR_CONFIG,
                     "f:2: mesh.tensor * mesh.pipeline = 2 * 3 = 6 does not divide 8 ranks; use sizes that do, or "
                     "another number of ranks");
  check_mesh_refused("[mesh]\ntensor = 2\ndata = 2\n", 8, GSEL_ERR_CONFIG,
                     "f:2: mesh.tensor * mesh.data * mesh.pipeline = 2 * 2 * 1 = 4, but there are 8 ranks; expected 4 "
                     "ranks or mesh.data = 4");
  check_mesh_refused("[mesh]\ndata = 1\n", 8, GSEL_ERR_CONFIG,
                     "f:2: mesh.tensor * mesh.data * mesh.pipeline = 1 * 1 * 1 = 1, but there are 8 ranks; expected 1 "
                     "rank or mesh.data = 8");
  check_mesh_refused("[mesh]\ntensor = 4611686018427387904\npipeline = 4\n", 8, GSEL_ERR_CONFIG,
                     "f:2: mesh.tensor * mesh.pipeline = 4611686018427387904 * 4 = more than 2^63 does not divide 8 "
                     "ranks; use sizes that do, or another number of ranks");
  check_mesh_refused("", 0, GSEL_ERR_ARG, "a mesh for 0 ranks; a mesh needs 1 rank or more");
}

void the_nearest_word_is_near(void**) {
  assert_int_equal(gsel::edit_distance("kitten", "sitting"), 3);
  assert_int_equal(gsel::edit_distance("", "abc"), 3);
  assert_string_equal(gsel::nearest("learningrate", {"momentum", "learning_rate"}).c_str(), "learning_rate");
  assert_string_equal(gsel::nearest("xyzzy", {"momentum", "batch"}).c_str(), "");
  assert_string_equal(gsel::nearest(std::string(5000, 'a'), {"a"}).c_str(), "");
  assert_string_equal(gsel::in_quotes("a\"b\n").c_str(), "\"a\\\"b\\x0a\"");
  assert_string_equal(gsel::in_quotes("\xc3\xa4\xc3\xa4", 3).c_str(), "\"\xc3\xa4...\"");
  assert_string_equal(gsel::one_line("a\tb\x7f\xc3\xa4 \r\n").c_str(), "a b \xc3\xa4");
  assert_string_equal(gsel::one_line(" \n").c_str(), "");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_key_stands_in_the_documentation_as_in_the_table),
      cmocka_unit_test(defaults_of_the_table_are_those_of_the_struct),
      cmocka_unit_test(every_default_is_accepted_by_its_own_key),
      cmocka_unit_test(options_of_a_plugin_keep_type_text_and_place),
      cmocka_unit_test(sizes_of_the_mesh_multiply_to_the_ranks),
      cmocka_unit_test(sizes_that_do_not_fit_say_what_would),
      cmocka_unit_test(the_nearest_word_is_near),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
