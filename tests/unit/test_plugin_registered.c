/* test_plugin_registered.c: plugins that are linked into the program. Those here are fixtures, compiled with
 * GSEL_PLUGIN_STATIC; that strategies train so is tested by tests/install/static.sh. */
#include <gsel/plugin.h>

#include "support/plugin_folder.h"

extern const struct gsel_plugin_v1 gsel_plugin_v1_good, gsel_plugin_v1_good_too, gsel_plugin_v1_probe_refuses,
    gsel_plugin_v1_no_compile, gsel_plugin_v1_newer_minor;

static gsel_plugin_info candidate(const gsel_plugin_list* list, int32_t i) {
  gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_list_get(list, i, &info, &err), err);
  return info;
}

static gsel_plugin_list* listed(void) {
  gsel_plugin_list* list = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_list_create(&list, &err), err);
  return list;
}

static void check_refused(const struct gsel_plugin_v1* plugin, gsel_status code, const char* message) {
  gsel_error* err = NULL;
  assert_int_equal(gsel_plugin_register(plugin, &err), code);
  assert_string_equal(gsel_error_message(err).data, message);
  gsel_error_free(err);
}

static void what_is_no_plugin_is_refused_in_the_words_of_a_file(void** state) {
  (void)state;
  check_refused(NULL, GSEL_ERR_ARG, "plugin is NULL");
  check_refused(&gsel_plugin_v1_no_compile, GSEL_ERR_PLUGIN,
                "plugin \"no_compile\" of the program: has no function compile, which a strategy needs");
  check_refused(
      &gsel_plugin_v1_newer_minor, GSEL_ERR_PLUGIN,
      "plugin without a name of the program: built for plugin ABI 1.12, this libgsel 0.1.0 accepts 1.0 to 1.11; "
      "update libgsel or rebuild against gsel 0.x");
}

static void a_registered_plugin_is_the_first_and_its_name_is_taken(void** state) {
  (void)state;
  gsel_error* err = NULL;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  for (int i = 0; i < 2; ++i) check_ok(gsel_plugin_register(&gsel_plugin_v1_good, &err), err);
  check_refused(&gsel_plugin_v1_good_too, GSEL_ERR_STATE,
                "another strategy named \"good\" is registered, version \"1.2.3\"; register one of them");

  gsel_plugin_list* list = listed();
  const gsel_plugin_info first = candidate(list, 0);
  assert_string_equal(first.name.data, "good");
  assert_string_equal(first.version.data, "1.2.3");
  assert_string_equal(first.path.data, "");
  assert_string_equal(first.refusal.data, "");
  const gsel_plugin_info file = candidate(list, 1);
  char expected[2048];
  snprintf(expected, sizeof expected,
           "plugin %s: shadowed by one of the program, which comes first and is a strategy named \"good\" too",
           path_in(&folder, "good.so"));
  assert_string_equal(file.path.data, path_in(&folder, "good.so"));
  assert_string_equal(file.refusal.data, expected);
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_probe_that_refuses_is_told_when_the_plugin_is_asked_for(void** state) {
  (void)state;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_register(&gsel_plugin_v1_probe_refuses, &err), err);
  gsel_plugin_list* list = listed();
  const gsel_plugin_info info = candidate(list, 1);
  assert_string_equal(info.name.data, "probe_refuses");
  assert_string_equal(info.refusal.data,
                      "plugin \"probe_refuses\" of the program: cannot run here: needs a device that is not here");
  gsel_plugin_list_free(list);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_no_plugin_is_refused_in_the_words_of_a_file),
      cmocka_unit_test(a_registered_plugin_is_the_first_and_its_name_is_taken),
      cmocka_unit_test(a_probe_that_refuses_is_told_when_the_plugin_is_asked_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
