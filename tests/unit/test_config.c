/* test_config.c: gsel.toml as an embedder meets it: values, defaults and what is said about mistakes. */
#include <stdlib.h>
#include <unistd.h>

#include "support/check.h"
#include "support/scratch.h"

static const char* const kSample =
    "# a whole file\n"
    "[select]\n"
    "accelerator = \"cpu\"\n"
    "devices = \"count:4\"\n"
    "[comm]\n"
    "timeout_s = 5\n"
    "[mesh]\n"
    "tensor = 2\n"
    "pipeline = 2\n"
    "data = \"auto\"\n"
    "[strategy.tensor]\n"
    "plugin = \"tp\"\n"
    "sequence_parallel = true\n"
    "weights = [2, 1.5]\n"
    "[strategy.data]\n"
    "plugin = \"ddp\"\n"
    "bucket_bytes = 25_000_000\n"
    "growth = 1.5\n"
    "[train]\n"
    "optimizer = \"sgd\"\n"
    "learning_rate = 0.125\n"
    "batch = 16\n"
    "microbatch = 2\n"
    "seed = 7\n";

static gsel_config* parsed(const char* text) {
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_config_parse(gsel_str_from(text), gsel_str_from("gsel.toml"), &config, &err), err);
  return config;
}

static void check_value(const gsel_config* config, const char* key, const char* expected) {
  const gsel_str got = gsel_config_get(config, gsel_str_from(key));
  if (got.data && got.len == strlen(expected) && strcmp(got.data, expected) == 0) return;
  fail_msg("%s: expected \"%s\", got %s", key, expected, got.data ? got.data : "nothing");
}

static void values_of_the_file_come_back_as_text(void** state) {
  (void)state;
  gsel_config* config = parsed(kSample);
  check_value(config, "select.accelerator", "cpu");
  check_value(config, "select.devices", "count:4");
  check_value(config, "comm.timeout_s", "5.0");
  check_value(config, "mesh.tensor", "2");
  check_value(config, "mesh.data", "auto");
  check_value(config, "strategy.data.plugin", "ddp");
  check_value(config, "strategy.data.bucket_bytes", "25000000");
  check_value(config, "strategy.data.growth", "1.5");
  check_value(config, "strategy.tensor.sequence_parallel", "true");
  check_value(config, "strategy.tensor.weights", "[2, 1.5]");
  check_value(config, "train.learning_rate", "0.125");
  check_value(config, "train.seed", "7");
  gsel_config_free(config);
}

static void absent_keys_have_their_defaults(void** state) {
  (void)state;
  gsel_config* config = parsed("");
  check_value(config, "select.order", "visible");
  check_value(config, "select.devices", "");
  check_value(config, "comm.timeout_s", "60.0");
  check_value(config, "mesh.tensor", "1");
  check_value(config, "mesh.data", "auto");
  check_value(config, "train.optimizer", "adamw");
  check_value(config, "train.batch", "8");
  check_value(config, "train.epsilon", "1e-08");
  check_value(config, "train.schedule", "constant");
  check_value(config, "train.precision", "f32");
  check_value(config, "train.loss_scale_initial", "65536.0");
  check_value(config, "train.recompute", "none");
  gsel_config_free(config);
}

static void an_unknown_key_gives_nothing(void** state) {
  (void)state;
  gsel_config* config = parsed("");
  assert_null(gsel_config_get(config, gsel_str_from("train.bath")).data);
  assert_null(gsel_config_get(config, gsel_str_from(NULL)).data);
  assert_null(gsel_config_get(NULL, gsel_str_from("train.batch")).data);
  gsel_config_free(config);
  gsel_config_free(NULL);
}

typedef struct {
  const char* text;
  gsel_status code;
  const char* message;
  const char* token;
  int32_t line, column;
} Mistake;

static const Mistake kMistakes[] = {
    {"[train]\nbatch = 4\n\nlearningrate = 1\n", GSEL_ERR_CONFIG,
     "gsel.toml:4: unknown key \"train.learningrate\"; did you mean \"train.learning_rate\"?", "train.learningrate", 4,
     1},
    {"[mesh]\ntensor = 1\n  data = \"two\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:3: mesh.data = \"two\" is text; expected an integer of at least 1 or \"auto\"", "mesh.data", 3, 3},
    {"[train]\nmemory_bytes = \"all\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.memory_bytes = \"all\" is text; expected an integer of at least 0 or \"auto\"",
     "train.memory_bytes", 2, 1},
    {"[train]\nmemory_bytes = -1\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.memory_bytes = -1 is out of bounds; expected an integer of at least 0 or \"auto\"",
     "train.memory_bytes", 2, 1},
    {"[train]\ndevice = \"cuda:x\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.device = \"cuda:x\" is no device; expected \"auto\", \"cpu\", a device such as \"cuda\" or "
     "\"cuda:1\", or \"cuda | cpu\" for the host where there is none",
     "train.device", 2, 1},
    {"[train]\ndevice = \"\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.device = \"\" is no device; expected \"auto\", \"cpu\", a device such as \"cuda\" or "
     "\"cuda:1\", or \"cuda | cpu\" for the host where there is none",
     "train.device", 2, 1},
    {"batch = 4\n", GSEL_ERR_CONFIG, "gsel.toml:1: unknown key \"batch\"; did you mean \"train.batch\"?", "batch", 1,
     1},
    {"[train]\nxyzzy = 4\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: unknown key \"train.xyzzy\"; there are train.optimizer, train.learning_rate, train.weight_decay, "
     "train.momentum, train.beta1, train.beta2, train.epsilon, train.clip_norm, train.gradient_norm, "
     "train.elastic, train.redundancy, train.redundancy_every, "
     "train.batch, train.microbatch, "
     "train.microbatches, train.seed",
     "train.xyzzy", 2, 1},
    {"[train]\nmicrobatches = 4\nmicrobatch = 2\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.microbatches = 4 says how many micro-batches there are and train.microbatch = 2 how large "
     "they are; use one of the two",
     "train.microbatches", 2, 1},
    {"xyzzy = 4\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: unknown key \"xyzzy\"; expected a key of a section such as train.batch", "xyzzy", 1, 1},
    {"[trian]\nbatch = 4\n", GSEL_ERR_CONFIG, "gsel.toml:1: unknown section \"trian\"; did you mean \"train\"?",
     "trian", 1, 2},
    {"[something]\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: unknown section \"something\"; there are strategy, select, comm, mesh, train, weights", "something",
     1, 2},
    {"[strategy.dat]\nplugin = \"dp\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: unknown section \"strategy.dat\"; did you mean \"strategy.data\"?", "strategy.dat", 1, 11},
    {"[train]\nbatch = 0\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.batch = 0 is out of bounds; expected an integer of at least 1", "train.batch", 2, 1},
    {"[train]\nmicrobatch = -1\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.microbatch = -1 is out of bounds; expected an integer of at least 0", "train.microbatch", 2,
     1},
    {"[train]\nbatch = 8.0\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.batch = 8.0 is a decimal number; expected an integer of at least 1", "train.batch", 2, 1},
    {"[train]\nbeta1 = 1\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.beta1 = 1 is out of bounds; expected a number of at least 0 and below 1", "train.beta1", 2, 1},
    {"[train]\nlearning_rate = nan\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.learning_rate = nan is out of bounds; expected a number of at least 0", "train.learning_rate",
     2, 1},
    {"[train]\nlearning_rate = inf\n", GSEL_ERR_CONFIG, "train.learning_rate = inf is out of bounds",
     "train.learning_rate", 2, 1},
    {"[comm]\ntimeout_s = 0\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: comm.timeout_s = 0 is out of bounds; expected a number above 0", "comm.timeout_s", 2, 1},
    {"[train]\nbatch = true\n", GSEL_ERR_CONFIG, "train.batch = true is a boolean; expected an integer", "train.batch",
     2, 1},
    {"[train]\nbatch = [4]\n", GSEL_ERR_CONFIG, "train.batch is an array; expected an integer", "train.batch", 2, 1},
    {"[train]\nbatch = 2024-01-01\n", GSEL_ERR_CONFIG, "train.batch is a date or time; expected an integer",
     "train.batch", 2, 1},
    {"[train]\nbatch.size = 1\n", GSEL_ERR_CONFIG, "train.batch is a section; expected an integer", "train.batch", 2,
     1},
    {"[train]\noptimizer = \"adan\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.optimizer = \"adan\" is not known; expected \"adamw\", \"adam\", \"adamw_8bit\", \"lion\", "
     "\"sgd\" or \"sign_sgd\"",
     "train.optimizer", 2, 1},
    {"[train]\nprecision = \"f16\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.precision = \"f16\" is not known; expected \"f32\", \"bf16\" or \"fp16\"", "train.precision",
     2, 1},
    {"[train]\nloss_scale_window = 0\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.loss_scale_window = 0 is out of bounds; expected an integer of at least 1",
     "train.loss_scale_window", 2, 1},
    {"[train]\nloss_scale_minimum = 0\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: train.loss_scale_minimum = 0 is out of bounds; expected a number above 0",
     "train.loss_scale_minimum", 2, 1},
    {"[train]\noptimizer = \"a\\nb\"\n", GSEL_ERR_CONFIG, "train.optimizer = \"a\\x0ab\" is not known",
     "train.optimizer", 2, 1},
    {"[select]\norder = \"slot\"\n", GSEL_ERR_CONFIG,
     "select.order = \"slot\" is not known; expected \"visible\", \"pci\", \"fastest\", \"most_free\" or \"near\"",
     "select.order", 2, 1},
    {"[select]\ndevices = 4\n", GSEL_ERR_CONFIG, "select.devices = 4 is an integer; expected text", "select.devices", 2,
     1},
    {"[mesh]\ntensor = 0\n", GSEL_ERR_CONFIG,
     "mesh.tensor = 0 is out of bounds; expected an integer of at least 1 or \"auto\"", "mesh.tensor", 2, 1},
    {"[mesh]\ntensor = \"auto\"\ndata = \"auto\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:3: mesh.data = \"auto\", but mesh.tensor is \"auto\" as well; expected an integer of at least 1 for "
     "one of them",
     "mesh.data", 3, 1},
    {"train = 3\n", GSEL_ERR_CONFIG, "gsel.toml:1: train is an integer; expected a section [train]", "train", 1, 1},
    {"[[train]]\nbatch = 3\n", GSEL_ERR_CONFIG, "train is an array; expected a section [train]", "train", 1, 3},
    {"strategy.data = \"ddp\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: strategy.data is text; expected a section [strategy.data]", "strategy.data", 1, 10},
    {"[strategy.data]\nbucket_bytes = 1\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: [strategy.data] names no plugin; set plugin = \"ddp\"", "strategy.data", 1, 11},
    {"[strategy.pipeline]\nschedule = \"1f1b\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: [strategy.pipeline] names no plugin; set plugin = \"pp\"", "strategy.pipeline", 1, 11},
    {"[strategy.data]\nplugin = \"../x\"\n", GSEL_ERR_CONFIG,
     "gsel.toml:2: strategy.data.plugin = \"../x\" is not a plugin's name; expected lower case letters, digits and '_' "
     "in quotes",
     "strategy.data.plugin", 2, 1},
    {"[strategy.data]\nplugin = \"ddp\"\nsizes = [1, 2]\n", GSEL_ERR_CONFIG,
     "strategy.data.sizes is an array; expected an integer, a number, a boolean or text", "strategy.data.sizes", 3, 1},
    {"[strategy.data]\nplugin = \"ddp\"\n\"a\\nb\" = [1]\n", GSEL_ERR_CONFIG,
     "unknown key \"strategy.data.a\\x0ab\"; expected lower case letters, digits and '_'", "strategy.data.a\nb", 3, 1},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = 2\n", GSEL_ERR_CONFIG,
     "gsel.toml:3: strategy.data.weights is 2; expected a list of numbers such as [2, 1]", "strategy.data.weights", 3,
     1},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = []\n", GSEL_ERR_CONFIG,
     "gsel.toml:3: strategy.data.weights is empty; expected a number for each rank of the axis",
     "strategy.data.weights", 3, 1},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [2,\n  0]\n", GSEL_ERR_CONFIG,
     "gsel.toml:4: strategy.data.weights has 0 at position 1; expected a number above 0 and at most 1000000000",
     "strategy.data.weights", 4, 3},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [2, \"1\"]\n", GSEL_ERR_CONFIG,
     "strategy.data.weights has \"1\" at position 1; expected a number above 0", "strategy.data.weights", 3, 15},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [[2], 1]\n", GSEL_ERR_CONFIG,
     "strategy.data.weights has an array at position 0; expected a number above 0", "strategy.data.weights", 3, 12},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [1, nan]\n", GSEL_ERR_CONFIG,
     "strategy.data.weights has nan at position 1; expected a number above 0", "strategy.data.weights", 3, 15},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [1, inf]\n", GSEL_ERR_CONFIG,
     "strategy.data.weights has inf at position 1; expected a number above 0", "strategy.data.weights", 3, 15},
    {"[strategy.data]\nplugin = \"ddp\"\nweights = [1, -2.5]\n", GSEL_ERR_CONFIG,
     "strategy.data.weights has -2.5 at position 1; expected a number above 0", "strategy.data.weights", 3, 15},
    {"[strategy.data]\nweights = [1, 1]\n", GSEL_ERR_CONFIG,
     "gsel.toml:1: [strategy.data] names no plugin; set plugin = \"ddp\"", "strategy.data", 1, 11},
    {"[train]\nbatch = 4\nbatch = 5\n", GSEL_ERR_PARSE, "gsel.toml:3: column ", "", 3, -1},
    {"[train\n", GSEL_ERR_PARSE, "gsel.toml:1: column ", "", 1, -1},
    {"[train]\nbatch = \n", GSEL_ERR_PARSE, "gsel.toml:2: column ", "", 2, -1},
    {"[train]\nbatch = 99999999999999999999\n", GSEL_ERR_PARSE, "gsel.toml:2: column ", "", 2, -1},
};

static void mistakes_are_named_with_place_and_remedy(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof kMistakes / sizeof kMistakes[0]; ++i) {
    const Mistake* m = &kMistakes[i];
    gsel_config* config = (gsel_config*)&config;
    gsel_error* err = NULL;
    const gsel_status status = gsel_config_parse(gsel_str_from(m->text), gsel_str_from("gsel.toml"), &config, &err);
    const char* got = gsel_error_message(err).data;
    if (status != m->code || !strstr(got, m->message) || strchr(got, '\n'))
      fail_msg("%s\nexpected %s: %s\n     got %s: %s", m->text, gsel_status_name(m->code), m->message,
               gsel_status_name(status), got);
    assert_null(config);
    assert_string_equal(gsel_error_file(err).data, "gsel.toml");
    assert_string_equal(gsel_error_token(err).data, m->token);
    if (gsel_error_line(err) != m->line || (m->column >= 0 && gsel_error_column(err) != m->column))
      fail_msg("%s\nexpected %d:%d, got %d:%d", m->text, m->line, m->column, gsel_error_line(err),
               gsel_error_column(err));
    gsel_error_free(err);
  }
}

static void the_first_mistake_of_the_file_is_reported(void** state) {
  (void)state;
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  check_fails(
      gsel_config_parse(gsel_str_from("[train]\nzz = 1\naa = 1\n[comm]\nqq = 1\n"), gsel_str_from("f"), &config, &err),
      err, GSEL_ERR_CONFIG, "f:2: unknown key \"train.zz\"");
}

static void a_data_size_of_one_replaces_auto_when_another_axis_is_auto(void** state) {
  (void)state;
  gsel_config* config = parsed("[mesh]\npipeline = \"auto\"\n");
  check_value(config, "mesh.pipeline", "auto");
  check_value(config, "mesh.data", "1");
  gsel_config_free(config);
}

/* A file of this test, in a folder of its own. */
typedef struct {
  char folder[256];
  char path[320];
} File;

static File file_with(const char* text) {
  File file;
  assert_true(make_scratch(file.folder, sizeof file.folder, "config"));
  snprintf(file.path, sizeof file.path, "%s/gsel.toml", file.folder);
  FILE* f = fopen(file.path, "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
  return file;
}

static void remove_file(File* file) {
  unlink(file->path);
  rmdir(file->folder);
}

static void a_file_is_read_and_named_in_errors(void** state) {
  (void)state;
  File file = file_with("[train]\nbatch = 12\n");
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_config_load(gsel_str_from(file.path), &config, &err), err);
  check_value(config, "train.batch", "12");
  gsel_config_free(config);
  remove_file(&file);

  file = file_with("[train]\nbatsh = 12\n");
  char message[512];
  snprintf(message, sizeof message, "%s:2: unknown key \"train.batsh\"; did you mean \"train.batch\"?", file.path);
  check_fails(gsel_config_load(gsel_str_from(file.path), &config, &err), err, GSEL_ERR_CONFIG, message);
  remove_file(&file);
}

static void an_unreadable_file_is_an_io_error(void** state) {
  (void)state;
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  check_fails(gsel_config_load(gsel_str_from("/nonexistent/gsel.toml"), &config, &err), err, GSEL_ERR_IO,
              "config file /nonexistent/gsel.toml: ENOENT (No such file or directory)");
  check_fails(gsel_config_load(gsel_str_from("/tmp"), &config, &err), err, GSEL_ERR_IO,
              "config file /tmp: is not a regular file");
  check_fails(gsel_config_load(gsel_str_from("/dev/zero"), &config, &err), err, GSEL_ERR_IO, "is not a regular file");
  check_fails(gsel_config_load(gsel_str_from(""), &config, &err), err, GSEL_ERR_ARG, "is empty");
  const gsel_str cut = {"a\0b", 3};
  check_fails(gsel_config_load(cut, &config, &err), err, GSEL_ERR_ARG, "NUL byte");
  check_fails(gsel_config_load(gsel_str_from("/tmp"), NULL, &err), err, GSEL_ERR_ARG, "out is NULL");
}

static void without_a_path_the_environment_names_the_file(void** state) {
  (void)state;
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  unsetenv("GSEL_CONFIG");
  check_ok(gsel_config_load(gsel_str_from(NULL), &config, &err), err);
  check_value(config, "train.batch", "8");
  gsel_config_free(config);

  File file = file_with("[train]\nbatch = 3\n");
  setenv("GSEL_CONFIG", file.path, 1);
  check_ok(gsel_config_load(gsel_str_from(NULL), &config, &err), err);
  check_value(config, "train.batch", "3");
  gsel_config_free(config);
  remove_file(&file);
  check_fails(gsel_config_load(gsel_str_from(NULL), &config, &err), err, GSEL_ERR_IO, file.path);

  setenv("GSEL_CONFIG", "", 1);
  check_ok(gsel_config_load(gsel_str_from(NULL), &config, &err), err);
  gsel_config_free(config);
  unsetenv("GSEL_CONFIG");
}

/* Any text gives a config or an error with a message of one line. */
static void survives(const char* text, size_t len) {
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  const gsel_str all = {text, len};
  const gsel_status status = gsel_config_parse(all, gsel_str_from("fuzz"), &config, &err);
  if (status == GSEL_OK) {
    assert_non_null(config);
    assert_null(err);
  } else {
    assert_null(config);
    assert_true(gsel_error_message(err).len > 0);
    for (size_t i = 0; i < gsel_error_message(err).len; ++i)
      assert_true((unsigned char)gsel_error_message(err).data[i] >= 0x20);
  }
  gsel_config_free(config);
  gsel_error_free(err);
}

static void truncated_and_flipped_texts_never_crash(void** state) {
  (void)state;
  const size_t len = strlen(kSample);
  for (size_t cut = 0; cut <= len; ++cut) survives(kSample, cut);
  char text[1024];
  uint32_t random = 1;
  for (size_t i = 0; i < len; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      memcpy(text, kSample, len);
      text[i] = (char)(text[i] ^ (1 << bit));
      survives(text, len);
      random = random * 1664525u + 1013904223u;
      text[random % len] = (char)(random >> 24);
      survives(text, len);
    }
}

static void texts_that_are_deep_or_long_are_refused(void** state) {
  (void)state;
  enum { kBytes = 1 << 20 };
  char* text = malloc(kBytes);
  assert_non_null(text);
  const char* const patterns[] = {"[", "a.", "x=[{y=", "\"", "#", "\n", "\xff"};
  for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; ++p) {
    const size_t step = strlen(patterns[p]);
    for (size_t i = 0; i < kBytes; ++i) text[i] = patterns[p][i % step];
    survives(text, 60000);
    survives(text, kBytes);
  }
  memset(text, '#', kBytes);
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  const gsel_str all = {text, kBytes};
  check_fails(gsel_config_parse(all, gsel_str_from("big"), &config, &err), err, GSEL_ERR_PARSE,
              "big: a configuration of 1048576 bytes; expected at most 65536 bytes");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_of_the_file_come_back_as_text),
      cmocka_unit_test(absent_keys_have_their_defaults),
      cmocka_unit_test(an_unknown_key_gives_nothing),
      cmocka_unit_test(mistakes_are_named_with_place_and_remedy),
      cmocka_unit_test(the_first_mistake_of_the_file_is_reported),
      cmocka_unit_test(a_data_size_of_one_replaces_auto_when_another_axis_is_auto),
      cmocka_unit_test(a_file_is_read_and_named_in_errors),
      cmocka_unit_test(an_unreadable_file_is_an_io_error),
      cmocka_unit_test(without_a_path_the_environment_names_the_file),
      cmocka_unit_test(truncated_and_flipped_texts_never_crash),
      cmocka_unit_test(texts_that_are_deep_or_long_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
