// test_plugin_inside.cc: loading by name, what plugins get of the host, and trust in files of other users.
#include <fstream>

#include "base/error.h"
#include "base/foreign.h"
#include "base/log.h"
#include "plugin/loader.h"
#include "plugin/registry.h"
#include "plugin/search.h"
#include "support/plugin_folder.h"

namespace {

template <class Body>
std::string text_of_failure(gsel_status code, Body&& body) {
  try {
    body();
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), code);
    return e.message();
  }
  fail_msg("nothing was thrown");
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  print_error("expected \"%s\" in\n%s\n", part.c_str(), text.c_str());
  return false;
}

void a_plugin_is_loaded_by_kind_and_name(void**) {
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  const gsel_plugin_v1& plugin = gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good");
  assert_string_equal(plugin.name, "good");
  assert_ptr_equal(&plugin, &gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good"));
  text_of_failure(GSEL_ERR_NOT_FOUND, [] { gsel::load_plugin(GSEL_PLUGIN_DEVICE, "good"); });
  remove_folder(&folder);
  assert_string_equal(plugin.version, "1.2.3");  // stays loaded though its file is gone
}

void a_refused_plugin_keeps_its_reason(void**) {
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "probe_refuses");
  copy_fixture_as(&folder, "wrong_major", "broken.so");
  const std::string path = path_in(&folder, "probe_refuses.so");
  const std::string text =
      text_of_failure(GSEL_ERR_PLUGIN, [] { gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "probe_refuses"); });
  assert_string_equal(text.c_str(), ("strategy plugin \"probe_refuses\" was refused: plugin " + path +
                                     ": cannot run here: needs a device that is not here")
                                        .c_str());
  // Its name could not be read; the name of its file stands in.
  assert_true(contains(text_of_failure(GSEL_ERR_PLUGIN, [] { gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "broken"); }),
                       "broken.so: built for plugin ABI 2.1"));
  remove_folder(&folder);
}

void a_later_usable_plugin_serves_when_the_first_is_refused(void**) {
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "a.so");
  copy_fixture_as(&folder, "good_too", "b.so");
  chmod(path_in(&folder, "a.so"), 0666);
  assert_string_equal(gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good").version, "9");
  remove_folder(&folder);
}

// Lines that plugins log while `body` runs. The probe of the fixture "good" logs one.
template <class Body>
std::string logged_during(Body&& body) {
  std::string lines;
  const auto add = [](gsel_log_level, gsel_str, gsel_str line, void* to) {
    *static_cast<std::string*>(to) += std::string(line.data, line.len) + "\n";
  };
  gsel::set_log_sink(add, GSEL_LOG_WARN, &lines, nullptr);
  body();
  gsel::set_log_sink(nullptr, 0, nullptr, nullptr);
  return lines;
}

bool is_mapped(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(path)) return true;
  return false;
}

void a_plugin_that_is_not_asked_for_is_not_probed(void**) {
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "a.so");
  copy_fixture(&folder, "local_mean");
  const std::string lines = logged_during(
      [] { assert_string_equal(gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "local_mean").name, "local_mean"); });
  assert_string_equal(lines.c_str(), "");
  assert_false(is_mapped(path_in(&folder, "a.so")));
  assert_true(is_mapped(path_in(&folder, "local_mean.so")));
  remove_folder(&folder);
}

void a_plugin_in_a_file_of_another_name_is_found_without_asking_others(void**) {
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "a.so");
  copy_fixture_as(&folder, "local_mean", "b.so");
  copy_fixture_as(&folder, "bad_kind", "local_mean.so");  // no local mean, though its file is called so
  const std::string lines = logged_during(
      [] { assert_string_equal(gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "local_mean").name, "local_mean"); });
  assert_string_equal(lines.c_str(), "");
  assert_false(is_mapped(path_in(&folder, "a.so")));
  assert_true(is_mapped(path_in(&folder, "b.so")));
  const std::string text = text_of_failure(GSEL_ERR_NOT_FOUND, [] { gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "x"); });
  assert_true(contains(text, "; there are \"good\", \"local_mean\""));
  assert_false(is_mapped(path_in(&folder, "a.so")));
  const std::string asked = logged_during([] { gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good"); });
  assert_true(contains(asked, "the good plugin was asked"));
  remove_folder(&folder);
}

void the_file_of_the_plugins_own_name_comes_first_in_its_folder(void**) {
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "a.so");
  copy_fixture_as(&folder, "good_too", "good.so");
  assert_string_equal(gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good").version, "9");
  // The list agrees.
  for (const gsel::Candidate& candidate : gsel::find_plugins()) {
    if (candidate.path == path_in(&folder, "good.so")) assert_string_equal(candidate.refusal.c_str(), "");
    if (candidate.path == path_in(&folder, "a.so"))
      assert_true(contains(candidate.refusal, "shadowed by " + std::string(path_in(&folder, "good.so"))));
  }
  // An earlier folder has precedence whatever its files are called.
  Folder earlier;
  assert_true(make_scratch(earlier.path, sizeof earlier.path, "plugins"));
  copy_fixture_as(&earlier, "good", "z.so");
  setenv("GSEL_PLUGIN_PATH", (std::string(earlier.path) + ":" + folder.path).c_str(), 1);
  assert_string_equal(gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "good").version, "1.2.3");
  remove_folder(&earlier);
  remove_folder(&folder);
}

void of_one_kind_alone_others_are_not_asked(void**) {
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  const std::string lines = logged_during([&] {
    for (const gsel::Candidate& candidate : gsel::find_plugins(GSEL_PLUGIN_TRANSPORT))
      if (candidate.kind != "transport") assert_null(candidate.plugin);
  });
  assert_string_equal(lines.c_str(), "");
  remove_folder(&folder);
}

void an_unknown_name_tells_what_there_is_and_where_it_looked(void**) {
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  setenv("GSEL_PLUGIN_PATH", (std::string(folder.path) + ":relative").c_str(), 1);
  const std::string text =
      text_of_failure(GSEL_ERR_NOT_FOUND, [] { gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "goood"); });
  assert_true(contains(text, "no strategy plugin \"goood\" in " + std::string(folder.path)));
  assert_true(contains(text, "; there are \"good\""));
  assert_true(contains(text, "; plugin folder relative: is not an absolute path"));
  remove_folder(&folder);
}

void errors_made_by_plugins_are_the_librarys(void**) {
  const gsel_host_v1& host = gsel::host_services();
  assert_int_equal(host.struct_size, sizeof host);
  gsel_error* err = host.error_new(GSEL_ERR_MODEL, "no layer to cut");
  assert_int_equal(gsel_error_code(err), GSEL_ERR_MODEL);
  assert_string_equal(gsel_error_message(err).data, "no layer to cut");
  gsel_error_free(err);
  err = host.error_new(GSEL_OK, nullptr);  // an error is never a success, nor without words
  assert_int_equal(gsel_error_code(err), GSEL_ERR_PLUGIN);
  assert_string_equal(gsel_error_message(err).data, "plugin refused");
  gsel_error_free(err);
}

int lines = 0;
void count_line(gsel_log_level level, gsel_str, gsel_str line, void*) {
  assert_true(level >= GSEL_LOG_ERROR && level <= GSEL_LOG_DEBUG);
  assert_non_null(line.data);
  ++lines;
}

void log_levels_of_plugins_are_kept_in_range(void**) {
  gsel::set_log_sink(count_line, GSEL_LOG_DEBUG, nullptr, nullptr);
  for (int32_t level : {INT32_MIN, -1, 0, 1, 4, 5, INT32_MAX}) gsel::host_services().log(level, nullptr, nullptr);
  gsel::set_log_sink(nullptr, 0, nullptr, nullptr);
  assert_int_equal(lines, 7);
}

void a_file_of_another_user_needs_that_users_consent(void**) {
  if (geteuid() != 0) skip();  // only root can give a file to another user
  const Folder folder = fresh_folder();
  write_into(&folder, "a.so", "x", 1);
  const std::string path = path_in(&folder, "a.so");
  assert_int_equal(chown(path.c_str(), 12345, 12345), 0);
  assert_string_equal(gsel::distrust_of_file(path, geteuid()).c_str(), "the file belongs to uid 12345; expected uid 0");
  assert_string_equal(gsel::distrust_of_file(path, 12345).c_str(), "");
  assert_int_equal(chown(folder.path, 12345, 12345), 0);
  assert_string_equal(gsel::distrust_of_folder(folder.path, 12345).c_str(), "");
  assert_true(contains(gsel::distrust_of_folder(folder.path, 54321), "belongs to uid 12345; expected uid 0 or 54321"));
  remove_folder(&folder);
}

void only_files_are_files_and_folders_folders(void**) {
  const Folder folder = fresh_folder();
  write_into(&folder, "a.so", "x", 1);
  const std::string path = path_in(&folder, "a.so");
  assert_string_equal(gsel::distrust_of_file(path, geteuid()).c_str(), "");
  assert_string_equal(gsel::distrust_of_file(folder.path, geteuid()).c_str(), "the file is not a regular file");
  assert_true(contains(gsel::distrust_of_folder(path, geteuid()), "is not a folder"));
  assert_true(contains(gsel::distrust_of_file(path + ".gone", geteuid()), "ENOENT"));
  assert_string_equal(gsel::distrust_of_folder("/", geteuid()).c_str(), "");
  remove_folder(&folder);
}

void a_sticky_folder_of_root_may_stand_above_but_not_hold(void**) {
  const Folder folder = fresh_folder();
  assert_string_equal(gsel::distrust_of_folder(folder.path, geteuid()).c_str(), "");
  assert_true(contains(gsel::distrust_of_folder("/tmp", geteuid()), "the folder /tmp is writable by group or others"));
  remove_folder(&folder);
}

// A stand-in for the compilation, as much of it as the example asks for.
struct Recorded {
  int32_t ranks;
  std::vector<gsel_instr> setup, step;
};
Recorded& recorded(const gsel_pass* pass) {
  return *reinterpret_cast<Recorded*>(const_cast<gsel_pass*>(pass));
}

gsel_pass_api_v1 recording_api() {
  gsel_pass_api_v1 api{};
  api.struct_size = sizeof api;
  api.axis_size = [](const gsel_pass* pass, gsel_axis) { return recorded(pass).ranks; };
  api.length = [](const gsel_pass* pass) { return static_cast<int32_t>(recorded(pass).step.size()); };
  api.get = [](const gsel_pass* pass, int32_t i, gsel_instr* out) {
    *out = recorded(pass).step.at(static_cast<size_t>(i));
    return static_cast<gsel_status>(GSEL_OK);
  };
  api.insert = [](gsel_pass* pass, int32_t i, const gsel_instr* instr) {
    auto& step = recorded(pass).step;
    if (i < 0 || static_cast<size_t>(i) > step.size()) return static_cast<gsel_status>(GSEL_ERR_ARG);
    step.insert(step.begin() + i, *instr);
    return static_cast<gsel_status>(GSEL_OK);
  };
  api.setup = [](gsel_pass* pass, const gsel_instr* instr) {
    recorded(pass).setup.push_back(*instr);
    return static_cast<gsel_status>(GSEL_OK);
  };
  return api;
}

// What flat makes of a step with these kinds of instruction, as kinds.
std::vector<int32_t> flattened(Recorded& program, const std::vector<int32_t>& kinds, gsel_status expected,
                               gsel_error** err) {
  program.step.clear();
  for (int32_t kind : kinds) program.step.push_back({kind, -1, -1, -1, kind == GSEL_INSTR_STEP ? 0 : -1, -1, -1, 0});
  const gsel_plugin_v1& flat = gsel::load_plugin(GSEL_PLUGIN_STRATEGY, "flat");
  const auto& strategy = *static_cast<const gsel_strategy_v1*>(flat.table);
  const gsel_pass_api_v1 api = recording_api();
  assert_int_equal(
      strategy.compile(&gsel::host_services(), &api, reinterpret_cast<gsel_pass*>(&program), GSEL_AXIS_DATA, err),
      expected);
  std::vector<int32_t> result;
  for (const gsel_instr& instr : program.step) result.push_back(instr.kind);
  return result;
}

void the_example_reduces_once_behind_the_backward_pass(void**) {
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "flat");
  gsel_error* err = nullptr;
  const std::vector<int32_t> alone{GSEL_FORWARD, GSEL_BACKWARD, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_INSTR_STEP};
  Recorded one{1, {}, {}}, two{2, {}, {}}, wrong{2, {}, {}};
  assert_true(flattened(one, alone, GSEL_OK, &err) == alone);
  assert_true(one.setup.empty());
  const std::vector<int32_t> shared{
      GSEL_FORWARD, GSEL_BACKWARD, GSEL_INSTR_ALLREDUCE, GSEL_INSTR_WAIT, GSEL_INSTR_LOSS_ALLREDUCE, GSEL_INSTR_STEP};
  assert_true(flattened(two, alone, GSEL_OK, &err) == shared);
  assert_int_equal(two.step[2].axis, GSEL_AXIS_DATA);
  assert_int_equal(two.setup.size(), 2);
  assert_int_equal(two.setup[0].kind, GSEL_INSTR_BROADCAST);
  assert_int_equal(two.setup[0].peer, 0);
  assert_int_equal(two.setup[1].kind, GSEL_INSTR_WAIT);
  // A program without a loss is refused in the plugin's words.
  flattened(wrong, {GSEL_FORWARD, GSEL_INSTR_STEP}, GSEL_ERR_ARG, &err);
  assert_string_equal(gsel_error_message(err).data, "flat: the reduction could not be put behind the backward pass");
  gsel_error_free(err);
  remove_folder(&folder);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_plugin_is_loaded_by_kind_and_name),
      cmocka_unit_test(a_refused_plugin_keeps_its_reason),
      cmocka_unit_test(a_later_usable_plugin_serves_when_the_first_is_refused),
      cmocka_unit_test(a_plugin_that_is_not_asked_for_is_not_probed),
      cmocka_unit_test(a_plugin_in_a_file_of_another_name_is_found_without_asking_others),
      cmocka_unit_test(the_file_of_the_plugins_own_name_comes_first_in_its_folder),
      cmocka_unit_test(of_one_kind_alone_others_are_not_asked),
      cmocka_unit_test(an_unknown_name_tells_what_there_is_and_where_it_looked),
      cmocka_unit_test(errors_made_by_plugins_are_the_librarys),
      cmocka_unit_test(log_levels_of_plugins_are_kept_in_range),
      cmocka_unit_test(the_example_reduces_once_behind_the_backward_pass),
      cmocka_unit_test(a_file_of_another_user_needs_that_users_consent),
      cmocka_unit_test(only_files_are_files_and_folders_folders),
      cmocka_unit_test(a_sticky_folder_of_root_may_stand_above_but_not_hold),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
