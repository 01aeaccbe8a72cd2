/* test_config_set.c: keys that are set by calls instead of a file: what is taken, what is refused, and that a refusal
 * changes nothing. */
#include <gsel/gsel.h>

#include "support/check.h"

static gsel_config* parsed(const char* text) {
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_config_parse(gsel_str_from(text), gsel_str_from("gsel.toml"), &config, &err), err);
  return config;
}

static gsel_status set(gsel_config* config, const char* key, const char* value, gsel_error** err) {
  return gsel_config_set(config, gsel_str_from(key), gsel_str_from(value), err);
}

static void check_value(const gsel_config* config, const char* key, const char* expected) {
  const gsel_str got = gsel_config_get(config, gsel_str_from(key));
  if (!got.data || strcmp(got.data, expected) != 0)
    fail_msg("%s: expected \"%s\", got %s", key, expected, got.data ? got.data : "nothing");
}

static void check_set(gsel_config* config, const char* key, const char* value, const char* expected) {
  gsel_error* err = NULL;
  check_ok(set(config, key, value, &err), err);
  check_value(config, key, expected);
}

static void check_refused(gsel_config* config, const char* key, const char* value, const char* why) {
  gsel_error* err = NULL;
  check_fails(set(config, key, value, &err), err, GSEL_ERR_CONFIG, why);
}

static void keys_of_every_type_are_set_as_get_gives_them(void** state) {
  (void)state;
  gsel_config* config = parsed("[train]\nbatch = 8\noptimizer = \"sgd\"\n");
  check_set(config, "train.batch", "64", "64");
  check_set(config, "train.optimizer", "adamw", "adamw");
  check_set(config, "train.learning_rate", "1e-3", "0.001");
  check_set(config, "train.learning_rate", "2", "2.0");
  check_set(config, "mesh.pipeline", "auto", "auto");
  check_set(config, "mesh.pipeline", "4", "4");
  check_set(config, "train.timeline", "a folder # with \"signs\"", "a folder # with \"signs\"");
  check_set(config, "train.timeline", "12", "12");
  check_set(config, "select.devices", "count:2", "count:2");
  gsel_config_free(config);
}

static void a_strategy_and_its_options_are_set_one_by_one(void** state) {
  (void)state;
  gsel_config* config = parsed("");
  check_refused(config, "strategy.data.stage", "2", "[strategy.data] names no plugin");
  check_set(config, "strategy.data.plugin", "zero", "zero");
  check_set(config, "strategy.data.stage", "2", "2");
  check_set(config, "strategy.data.overlap", "false", "false");
  check_set(config, "strategy.data.keep", "forward", "forward");
  check_set(config, "strategy.data.weights", "[2, 1]", "[2, 1]");
  check_set(config, "strategy.context.plugin", "cp", "cp");
  gsel_config_free(config);
}

static void the_file_counts_again_once_a_key_is_taken_out(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_config* config = parsed("[train]\nbatch = 8\n");
  check_set(config, "train.batch", "64", "64");
  check_set(config, "train.seed", "9", "9");
  check_ok(set(config, "train.batch", NULL, &err), err);
  check_ok(set(config, "train.seed", NULL, &err), err);
  check_value(config, "train.batch", "8");
  check_value(config, "train.seed", "1");
  gsel_config_free(config);
}

static void what_is_wrong_is_told_as_of_a_file_and_changes_nothing(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_config* config = parsed("[train]\nbatch = 8\nmicrobatch = 2\n");
  check_refused(config, "train.batch", "0",
                "gsel_config_set: train.batch = 0 is out of bounds; expected an integer of at least 1");
  check_refused(config, "train.batch", "many", "gsel_config_set: train.batch = \"many\" is text");
  check_refused(config, "train.batch", "1\nseed = 2", "gsel_config_set: train.batch");
  check_refused(config, "train.batch", "1, seed = 2", "gsel_config_set: train.batch");
  check_refused(config, "train.batch", "", "gsel_config_set: train.batch");
  check_refused(config, "train.btch", "1",
                "gsel_config_set: unknown key \"train.btch\"; did you mean \"train.batch\"?");
  check_refused(config, "train", "1", "gsel_config_set: train is");
  check_refused(config, "batch", "1", "unknown key \"batch\"");
  check_refused(config, "train.batch.size", "1", "train.batch");
  check_refused(config, ".", "1", "unknown");
  check_refused(config, "strategy.sideways.plugin", "tp", "strategy.sideways");
  /* a fault that one key makes together with another of the file */
  check_refused(config, "train.microbatches", "4", "use one of the two");
  check_fails(gsel_config_set(NULL, gsel_str_from("train.batch"), gsel_str_from("1"), &err), err, GSEL_ERR_ARG,
              "config");
  check_fails(set(config, NULL, "1", &err), err, GSEL_ERR_ARG, "key is not given");
  check_value(config, "train.batch", "8");
  check_value(config, "train.microbatch", "2");
  check_value(config, "train.microbatches", "0");
  check_set(config, "train.batch", "16", "16");
  gsel_config_free(config);
}

/* A key of `parts` parts, "a.a.a"; static, until the next call. */
static const char* key_of(size_t parts) {
  static char key[1 << 20];
  for (size_t i = 0; i < 2 * parts; ++i) key[i] = i % 2 ? '.' : 'a';
  key[2 * parts - 1] = '\0';
  return key;
}

static void a_key_that_is_too_long_or_deep_is_refused(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_config* config = parsed("[train]\nbatch = 8\n");
  check_refused(config, key_of(9), "1", "gsel_config_set: unknown");
  check_refused(config, key_of(10), "1",
                "gsel_config_set: key \"a.a.a.a.a.a.a.a.a.a\" has 10 parts; expected at most 9");
  check_refused(config, key_of(256), "1", " has 256 parts; expected at most 9");
  check_refused(config, key_of(257), "1", " has 513 bytes; expected at most 512");
  assert_int_equal(set(config, key_of(100000), "1", &err), GSEL_ERR_CONFIG);
  assert_string_equal(gsel_error_message(err).data,
                      "gsel_config_set: key \"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a....\" has "
                      "199999 bytes; expected at most 512");
  assert_string_equal(gsel_error_file(err).data, "gsel_config_set");
  assert_string_equal(gsel_error_token(err).data, key_of(100000));
  gsel_error_free(err);
  check_fails(gsel_config_set(config, gsel_str_from(key_of(100000)), gsel_str_from(NULL), &err), err, GSEL_ERR_CONFIG,
              "at most 512");
  check_value(config, "train.batch", "8");
  gsel_config_free(config);
}

static void the_mesh_follows(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_mesh mesh = GSEL_MESH_INIT;
  gsel_config* config = parsed("[mesh]\ntensor = 2\n");
  check_set(config, "mesh.tensor", "1", "1");
  check_set(config, "mesh.context", "2", "2");
  check_set(config, "mesh.pipeline", "3", "3");
  check_ok(gsel_mesh_resolve(config, 12, &mesh, &err), err);
  assert_int_equal(mesh.size[GSEL_AXIS_TENSOR], 1);
  assert_int_equal(mesh.size[GSEL_AXIS_CONTEXT], 2);
  assert_int_equal(mesh.size[GSEL_AXIS_DATA], 2);
  assert_int_equal(mesh.size[GSEL_AXIS_PIPELINE], 3);
  assert_int_equal(gsel_mesh_coordinate(&mesh, 7, GSEL_AXIS_CONTEXT), 1); /* 7 = 1 + 2 * (1 + 2 * 1) */
  assert_int_equal(gsel_mesh_coordinate(&mesh, 7, GSEL_AXIS_DATA), 1);
  assert_int_equal(gsel_mesh_coordinate(&mesh, 7, GSEL_AXIS_PIPELINE), 1);
  check_set(config, "mesh.tensor", "2", "2");
  check_fails(gsel_mesh_resolve(config, 12, &mesh, &err), err, GSEL_ERR_UNSUPPORTED,
              "mesh.tensor = 2 and mesh.context = 2: layers are shared along one of the two");
  gsel_config_free(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(keys_of_every_type_are_set_as_get_gives_them),
      cmocka_unit_test(a_strategy_and_its_options_are_set_one_by_one),
      cmocka_unit_test(the_file_counts_again_once_a_key_is_taken_out),
      cmocka_unit_test(what_is_wrong_is_told_as_of_a_file_and_changes_nothing),
      cmocka_unit_test(a_key_that_is_too_long_or_deep_is_refused),
      cmocka_unit_test(the_mesh_follows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
