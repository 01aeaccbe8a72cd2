/* test_plugin.c: which modules are loaded, which are refused, and in which words. */
#include "support/plugin_folder.h"

static gsel_plugin_list* listed(void) {
  gsel_plugin_list* list = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_list_create(&list, &err), err);
  return list;
}

static gsel_plugin_info candidate(const gsel_plugin_list* list, int32_t i) {
  gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
  gsel_error* err = NULL;
  check_ok(gsel_plugin_list_get(list, i, &info, &err), err);
  return info;
}

/* Position of the candidate with that path, or -1. */
static int32_t position_of(const gsel_plugin_list* list, const char* path) {
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i)
    if (strcmp(candidate(list, i).path.data, path) == 0) return i;
  return -1;
}

static gsel_plugin_info candidate_at(const gsel_plugin_list* list, const char* path) {
  const int32_t i = position_of(list, path);
  if (i < 0) fail_msg("%s is not among the candidates", path);
  return candidate(list, i);
}

/* The candidate at `path` is refused with "<what> <path>: <reason>". */
static void check_refused(const char* what, const char* path, const char* reason) {
  char expected[2048];
  snprintf(expected, sizeof expected, "%s %s: %s", what, path, reason);
  gsel_plugin_list* list = listed();
  assert_string_equal(candidate_at(list, path).refusal.data, expected);
  gsel_plugin_list_free(list);
}

static const struct {
  const char* fixture;
  const char* reason;
} kRefusals[] = {
    {"wrong_major", "built for plugin ABI 2.1, this libgsel 0.1.0 accepts 1.0 to 1.11; rebuild against gsel 0.x"},
    {"newer_minor",
     "built for plugin ABI 1.12, this libgsel 0.1.0 accepts 1.0 to 1.11; update libgsel or rebuild against gsel 0.x"},
    {"short_table", "its gsel_plugin_v1 has 16 bytes, plugin ABI 1.0 has 64 bytes; rebuild against gsel 0.x"},
    {"short_symbol",
     "its gsel_plugin_v1 in the file has 16 bytes, plugin ABI 1.0 has 64 bytes; rebuild against gsel 0.x"},
    {"short_strategy", "its strategy table has 8 bytes, plugin ABI 1.0 has 32 bytes; rebuild against gsel 0.x"},
    {"no_symbol", "exports no gsel_plugin_v1; is it a gsel plugin?"},
    {"missing_dependency",
     "cannot be opened: undefined symbol: function_that_nobody_has; expected a shared object for this machine with all "
     "it needs"},
    {"probe_refuses", "cannot run here: needs a device that is not here"},
    {"probe_throws", "its probe threw an exception (thrown by a probe); plugins must not throw"},
    {"nameless", "is named NULL; expected lower case letters, digits and '_'"},
    {"bad_name", "is named \"Bad Name\"; expected lower case letters, digits and '_'"},
    {"bad_kind", "is of kind 7; expected 1 (strategy), 3 (device) or 5 (transport)"},
    {"no_table", "has no table; give it a gsel_strategy_v1"},
    {"no_compile", "has no function compile, which a strategy needs"},
    {"reserved_set",
     "gsel_strategy_v1.reserved is 3; it must be 0, as the struct's _INIT macro or _init function leaves it"},
    {"no_axis", "serves axes 0x0; expected one or more of the bits 0xf"},
    {"bad_option", "option \"stage\" has the default \"4\", which is not of its own type or bounds"},
    {"twin_options", "two options are named \"stage\""},
    {"uneven_options", "option 1 has a struct_size of 56 and option 0 of 48; use one for all"},
    {"overstated", "its gsel_plugin_v1 states 72 bytes and has 64 in the file; set struct_size to its sizeof"},
    {"half_device", "has no function describe, which a device needs"},
    {"half_transport", "has no function link_join, which a transport needs"},
    {"former_transport",
     "is a transport with a gsel_transport_v1; build it with the gsel_transport_v2 of this version"},
};

static void every_way_of_being_wrong_is_refused_in_its_words(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  for (size_t i = 0; i < sizeof kRefusals / sizeof kRefusals[0]; ++i) copy_fixture(&folder, kRefusals[i].fixture);
  gsel_plugin_list* list = listed();
  for (size_t i = 0; i < sizeof kRefusals / sizeof kRefusals[0]; ++i) {
    char name[64], expected[2048];
    snprintf(name, sizeof name, "%s.so", kRefusals[i].fixture);
    snprintf(expected, sizeof expected, "plugin %s: %s", path_in(&folder, name), kRefusals[i].reason);
    assert_string_equal(candidate_at(list, path_in(&folder, name)).refusal.data, expected);
  }
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_symbol_of_a_dependency_is_not_the_plugins_own(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "inherits");
  gsel_plugin_list* list = listed();
  const gsel_plugin_info info = candidate_at(list, path_in(&folder, "inherits.so"));
  assert_non_null(strstr(info.refusal.data, "inherits.so: exports no gsel_plugin_v1 of its own, it is that of "));
  assert_non_null(strstr(info.refusal.data, "libfixture_donor.so; define it in the plugin's file"));
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void files_that_are_not_modules_are_refused(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  const char text[] = "this is no module, though it is longer than the header of one would be ..............";
  write_into(&folder, "text.so", text, strlen(text));
  write_into(&folder, "empty.so", "", 0);
  write_into(&folder, "ignored.txt", "x", 1);
  write_into(&folder, ".so", "x", 1);
  assert_int_equal(symlink("nowhere", path_in(&folder, "dangling.so")), 0);
  check_refused("plugin", path_in(&folder, "text.so"),
                "cannot be opened: invalid ELF header; expected a shared object for this machine with all it needs");
  check_refused("plugin", path_in(&folder, "empty.so"),
                "cannot be opened: file too short; expected a shared object for this machine with all it needs");
  check_refused("plugin", path_in(&folder, "dangling.so"), "cannot be resolved: ENOENT (No such file or directory)");
  gsel_plugin_list* list = listed();
  assert_int_equal(position_of(list, path_in(&folder, "ignored.txt")), -1);
  assert_int_equal(position_of(list, path_in(&folder, ".so")), -1);
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_cut_module_never_crashes(void** state) {
  (void)state;
  static char bytes[1 << 20];
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "whole");
  FILE* file = fopen(path_in(&folder, "whole"), "rb");
  assert_non_null(file);
  const size_t n = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  const size_t cuts[] = {1, 4, 16, 63, 64};
  for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; ++i) {
    assert_true(cuts[i] < n);
    write_into(&folder, "cut.so", bytes, cuts[i]);
    gsel_plugin_list* list = listed();
    assert_true(candidate_at(list, path_in(&folder, "cut.so")).refusal.len > 0);
    gsel_plugin_list_free(list);
  }
  remove_folder(&folder);
}

static void tables_longer_than_the_host_knows_are_taken_as_far_as_it_does(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "longer_tables");
  gsel_plugin_list* list = listed();
  assert_string_equal(candidate_at(list, path_in(&folder, "longer_tables.so")).refusal.data, "");
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_sound_plugin_is_usable_and_described(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  for (int again = 0; again < 2; ++again) {
    gsel_plugin_list* list = listed();
    const gsel_plugin_info info = candidate_at(list, path_in(&folder, "good.so"));
    assert_string_equal(info.refusal.data, "");
    assert_string_equal(info.kind.data, "strategy");
    assert_string_equal(info.name.data, "good");
    assert_string_equal(info.version.data, "1.2.3");
    gsel_plugin_list_free(list);
  }
  remove_folder(&folder);
}

static char logged[256];
static void remember(gsel_log_level level, gsel_str component, gsel_str line, void* user_data) {
  (void)user_data;
  const size_t used = strlen(logged);
  snprintf(logged + used, sizeof logged - used, "%d %.*s: %.*s\n", level, (int)component.len, component.data,
           (int)line.len, line.data);
}

static void a_plugin_speaks_through_the_hosts_log(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  logged[0] = '\0';
  gsel_log_set(remember, GSEL_LOG_WARN, NULL, NULL);
  gsel_plugin_list_free(listed());
  assert_string_equal(logged, "2 good: the good plugin was asked\n");
  gsel_log_set(NULL, 0, NULL, NULL);
  remove_folder(&folder);
}

static void of_two_plugins_of_one_name_the_first_wins(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture_as(&folder, "good", "a.so");
  copy_fixture_as(&folder, "good_too", "b.so");
  char reason[1024];
  snprintf(reason, sizeof reason, "shadowed by %s, which comes first and is a strategy named \"good\" too",
           path_in(&folder, "a.so"));
  check_refused("plugin", path_in(&folder, "b.so"), reason);
  gsel_plugin_list* list = listed();
  assert_string_equal(candidate_at(list, path_in(&folder, "a.so")).refusal.data, "");
  assert_true(position_of(list, path_in(&folder, "a.so")) < position_of(list, path_in(&folder, "b.so")));
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_folder_or_file_met_twice_is_listed_once(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  assert_int_equal(symlink("good.so", path_in(&folder, "link.so")), 0);
  char twice[512];
  snprintf(twice, sizeof twice, "%s:%s/:", folder.path, folder.path);
  setenv("GSEL_PLUGIN_PATH", twice, 1);
  gsel_plugin_list* list = listed();
  int found = 0;
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i)
    found += strstr(candidate(list, i).path.data, folder.path) != NULL;
  assert_int_equal(found, 1);
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_file_others_can_write_is_refused_until_mended(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  const mode_t modes[] = {0666, 0664, 0646};
  for (size_t i = 0; i < 3; ++i) {
    char path[512], reason[1024];
    snprintf(path, sizeof path, "%s", path_in(&folder, "good.so"));
    assert_int_equal(chmod(path, modes[i]), 0);
    snprintf(reason, sizeof reason, "the file is writable by group or others (mode %04o); run chmod go-w %s",
             (unsigned)modes[i], path);
    check_refused("plugin", path, reason);
  }
  assert_int_equal(chmod(path_in(&folder, "good.so"), 0644), 0);
  gsel_plugin_list* list = listed();
  assert_string_equal(candidate_at(list, path_in(&folder, "good.so")).refusal.data, "");
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void a_folder_others_can_write_is_refused_whole(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  const mode_t modes[] = {0777, 0775, 01777};
  for (size_t i = 0; i < 3; ++i) {
    assert_int_equal(chmod(folder.path, modes[i]), 0);
    char reason[1024];
    snprintf(reason, sizeof reason, "the folder %s is writable by group or others (mode %04o); run chmod go-w %s",
             folder.path, (unsigned)modes[i], folder.path);
    check_refused("plugin folder", folder.path, reason);
    gsel_plugin_list* list = listed();
    assert_int_equal(position_of(list, path_in(&folder, "good.so")), -1);
    gsel_plugin_list_free(list);
  }
  remove_folder(&folder);
}

static void a_folder_below_one_others_can_write_is_refused(void** state) {
  (void)state;
  const Folder above = fresh_folder();
  Folder folder;
  snprintf(folder.path, sizeof folder.path, "%.40s/deep", above.path);
  assert_int_equal(mkdir(folder.path, 0755), 0);
  assert_int_equal(chmod(above.path, 0777), 0);
  setenv("GSEL_PLUGIN_PATH", folder.path, 1);
  char reason[1024];
  snprintf(reason, sizeof reason,
           "the folder %s above it is writable by group or others (mode 0777); run chmod go-w %s", above.path,
           above.path);
  check_refused("plugin folder", folder.path, reason);
  remove_folder(&folder);
  remove_folder(&above);
}

static void folders_that_cannot_be_used_are_listed(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  setenv("GSEL_PLUGIN_PATH", "relative/plugins:/nonexistent/plugins:.", 1);
  const char* relative = "is not an absolute path; GSEL_PLUGIN_PATH takes absolute folders joined by ':'";
  check_refused("plugin folder", "relative/plugins", relative);
  check_refused("plugin folder", ".", relative);
  check_refused("plugin folder", "/nonexistent/plugins", "cannot be resolved: ENOENT (No such file or directory)");
  remove_folder(&folder);
}

static void the_current_directory_is_never_searched(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  char before[512];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(folder.path), 0);
  const char* const paths[] = {"", ":", "::"};
  for (size_t i = 0; i < 3; ++i) {
    setenv("GSEL_PLUGIN_PATH", paths[i], 1);
    gsel_plugin_list* list = listed();
    assert_int_equal(position_of(list, path_in(&folder, "good.so")), -1);
    gsel_plugin_list_free(list);
  }
  assert_int_equal(chdir(before), 0);
  remove_folder(&folder);
}

static void the_folder_beside_the_library_comes_last(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  gsel_plugin_list* list = listed();
  const int32_t count = gsel_plugin_list_count(list);
  assert_true(count >= 1);
  assert_int_equal(position_of(list, path_in(&folder, "good.so")), 0);
  for (int32_t i = 1; i < count; ++i) assert_non_null(strstr(candidate(list, i).path.data, "/lib/gsel/plugins-1"));
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void an_info_of_any_age_is_filled(void** state) {
  (void)state;
  const Folder folder = fresh_folder();
  copy_fixture(&folder, "good");
  gsel_plugin_list* list = listed();
  gsel_error* err = NULL;
  gsel_plugin_info older;
  memset(&older, 0x5a, sizeof older);
  older.struct_size = offsetof(gsel_plugin_info, kind);
  check_ok(gsel_plugin_list_get(list, 0, &older, &err), err);
  assert_string_equal(older.path.data, path_in(&folder, "good.so"));
  assert_int_equal(older.struct_size, offsetof(gsel_plugin_info, kind));
  const unsigned char* untouched = (const unsigned char*)&older.kind;
  for (size_t i = 0; i < sizeof older - offsetof(gsel_plugin_info, kind); ++i) assert_int_equal(untouched[i], 0x5a);

  struct {
    gsel_plugin_info known;
    uint64_t tail;
  } newer;
  memset(&newer, 0, sizeof newer);
  newer.known.struct_size = sizeof newer;
  newer.tail = 7;
  check_ok(gsel_plugin_list_get(list, 0, &newer.known, &err), err);
  assert_string_equal(newer.known.name.data, "good");
  assert_int_equal(newer.tail, 7);

  gsel_plugin_info unset;
  memset(&unset, 0, sizeof unset);
  check_fails(gsel_plugin_list_get(list, 0, &unset, &err), err, GSEL_ERR_VERSION, "gsel_plugin_info.struct_size is 0");
  gsel_plugin_info_init(&unset, sizeof unset);
  assert_int_equal(unset.struct_size, sizeof unset);
  gsel_plugin_info_init(NULL, sizeof unset);
  gsel_plugin_list_free(list);
  remove_folder(&folder);
}

static void arguments_out_of_range_are_refused(void** state) {
  (void)state;
  gsel_plugin_list* list = listed();
  gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
  gsel_error* err = NULL;
  check_fails(gsel_plugin_list_get(list, -1, &info, &err), err, GSEL_ERR_ARG, "candidate -1 of ");
  check_fails(gsel_plugin_list_get(list, gsel_plugin_list_count(list), &info, &err), err, GSEL_ERR_ARG, "expected ");
  check_fails(gsel_plugin_list_get(list, 0, NULL, &err), err, GSEL_ERR_ARG, "gsel_plugin_info is NULL");
  check_fails(gsel_plugin_list_get(NULL, 0, &info, &err), err, GSEL_ERR_ARG, "list is NULL");
  check_fails(gsel_plugin_list_create(NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
  assert_int_equal(gsel_plugin_list_count(NULL), 0);
  gsel_plugin_list_free(list);
  gsel_plugin_list_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_way_of_being_wrong_is_refused_in_its_words),
      cmocka_unit_test(a_symbol_of_a_dependency_is_not_the_plugins_own),
      cmocka_unit_test(files_that_are_not_modules_are_refused),
      cmocka_unit_test(a_cut_module_never_crashes),
      cmocka_unit_test(tables_longer_than_the_host_knows_are_taken_as_far_as_it_does),
      cmocka_unit_test(a_sound_plugin_is_usable_and_described),
      cmocka_unit_test(a_plugin_speaks_through_the_hosts_log),
      cmocka_unit_test(of_two_plugins_of_one_name_the_first_wins),
      cmocka_unit_test(a_folder_or_file_met_twice_is_listed_once),
      cmocka_unit_test(a_file_others_can_write_is_refused_until_mended),
      cmocka_unit_test(a_folder_others_can_write_is_refused_whole),
      cmocka_unit_test(a_folder_below_one_others_can_write_is_refused),
      cmocka_unit_test(folders_that_cannot_be_used_are_listed),
      cmocka_unit_test(the_current_directory_is_never_searched),
      cmocka_unit_test(the_folder_beside_the_library_comes_last),
      cmocka_unit_test(an_info_of_any_age_is_filled),
      cmocka_unit_test(arguments_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
