/* Settings that change nothing are told, one line each, with the place where they stand; those that do something are
 * not. */
#include "support/equality_model.h"
#include "support/step_model.h"

enum { MOST_LINES = 8 };
static char lines[MOST_LINES][512];
static int n_lines;

/* Rank 0 alone tells, so one thread at a time is here. */
static void keep_warning(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  (void)user;
  if (level != GSEL_LOG_WARN || strncmp(component.data, "config", component.len) != 0 || n_lines == MOST_LINES) return;
  snprintf(lines[n_lines++], sizeof *lines, "%.*s", (int)line.len, line.data);
}

typedef struct trial {
  const char* config;
  gsel_status (*describe)(gsel_model*, gsel_error**);
} trial;

static gsel_status describe_step(gsel_model* model, gsel_error** err) {
  static const step_model plain;
  return step_describe(model, &plain, err);
}

static void has_positions_but_in_y(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)p, (void)m;
  if (v && v->flags & GSEL_VALUE_INPUT) v->sequence_dim = 1;
  if (l) l->flags |= GSEL_LAYER_POSITIONWISE;
}

static void make_trainer(rank_run* run) {
  const trial* t = (const trial*)run->user;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_config* config = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_config_parse(gsel_str_from(t->config), gsel_str_from("idle.toml"), &config, &err), err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, t->describe(model, &err), err);
  options.config = config;
  options.data = eq_data;
  rank_ok(run, gsel_trainer_create(comm, model, &options, &trainer, &err), err);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

static void tell(int ranks, gsel_status (*describe)(gsel_model*, gsel_error**), const char* config) {
  trial t = {config, describe};
  n_lines = 0;
  gsel_log_set(keep_warning, GSEL_LOG_WARN, NULL, NULL);
  as_threads(ranks, make_trainer, &t);
  gsel_log_set(NULL, 0, NULL, NULL);
  for (int i = 0; i < n_lines; ++i) print_message("  %s\n", lines[i]);
}

static void expect_one(const char* begin, const char* remedy) {
  assert_int_equal(n_lines, 1);
  assert_int_equal(strncmp(lines[0], begin, strlen(begin)), 0);
  assert_non_null(strstr(lines[0], remedy));
}

#define TP "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n"
#define ZERO3 "[strategy.data]\nplugin = \"zero\"\nstage = 3\n"

static void tp_on_a_model_without_shard_rules_is_told(void** state) {
  (void)state;
  tell(2, describe_step, TP);
  expect_one("idle.toml:4: strategy.tensor.plugin = \"tp\" divides nothing", "GSEL_SHARD_DIM");
  tell(2, eq_describe, TP);
  assert_int_equal(n_lines, 0);
}

static void sequence_parallel_without_layers_for_it_is_told(void** state) {
  (void)state;
  tell(2, eq_describe, TP "sequence_parallel = true\n");
  expect_one("idle.toml:5: strategy.tensor.sequence_parallel = true changes nothing", "GSEL_LAYER_POSITIONWISE");
  tell(1, eq_describe, "[mesh]\ntensor = 1\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n");
  assert_int_equal(n_lines, 0); /* a file for any number of ranks */
}

static void recompute_without_a_layer_that_may_is_told(void** state) {
  (void)state;
  tell(1, eq_describe, "[train]\nrecompute = \"all\"\n");
  expect_one("idle.toml:2: train.recompute = \"all\" changes nothing", "GSEL_LAYER_RECOMPUTABLE");
}

static void stage_3_that_keeps_everything_is_told(void** state) {
  (void)state;
  tell(2, eq_describe, ZERO3);
  expect_one("idle.toml:3: strategy.data.stage = 3 is stage 2 here: persist_elems = 100000, its default, keeps",
             "persist_elems = 24 or less");
  tell(2, eq_describe, ZERO3 "persist_elems = 25\n");
  expect_one("idle.toml:3: strategy.data.stage = 3 is stage 2 here: persist_elems = 25", "persist_elems = 24 or less");
  tell(2, eq_describe, ZERO3 "persist_elems = 24\n");
  assert_int_equal(n_lines, 0);
}

static void bucket_bytes_that_the_first_bucket_leaves_nothing_to_are_told(void** state) {
  (void)state;
  tell(2, eq_describe, "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 64\n");
  expect_one("idle.toml:3: strategy.data.bucket_bytes = 64 changes nothing", "set first_bucket_bytes = 64");
  tell(2, eq_describe, "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 64\nfirst_bucket_bytes = 1\n");
  assert_int_equal(n_lines, 0);
  tell(2, eq_describe, "[strategy.data]\nplugin = \"zero\"\nbucket_bytes = 64\n");
  assert_int_equal(n_lines, 0); /* its first bucket is no larger than bucket_bytes */
  tell(2, eq_describe, ZERO3 "persist_elems = 0\nbucket_bytes = 64\n");
  expect_one("idle.toml:5: strategy.data.bucket_bytes = 64 changes nothing: in stage 3", "prefetch_elems");
}

static void micro_batches_without_samples_are_told(void** state) {
  (void)state;
  tell(3, describe_step, "[train]\nbatch = 6\nmicrobatches = 5\n");
  expect_one("idle.toml:3: train.microbatches = 5 cut a shard of 2 samples: 3 micro-batches are empty on every rank",
             "2 or fewer");
  tell(3, describe_step, "[train]\nbatch = 4\nmicrobatches = 3\n");
  expect_one("idle.toml:3: train.microbatches = 3 cut a shard of 2 samples: 1 micro-batch is empty", "2 or fewer");
  tell(3, describe_step, "[train]\nbatch = 4\nmicrobatches = 2\n");
  assert_int_equal(n_lines, 0);
}

static gsel_status describe_positions(gsel_model* model, gsel_error** err) {
  step_model m;
  memset(&m, 0, sizeof m);
  m.vary = has_positions_but_in_y;
  return step_describe(model, &m, err);
}

static void a_forgotten_sequence_dim_is_told_with_its_value(void** state) {
  (void)state;
  tell(2, describe_positions, "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n");
  assert_int_equal(n_lines, 2); /* the other one says that cp divides nothing */
  assert_non_null(
      strstr(lines[1], "idle.toml:4: strategy.context.plugin = \"cp\" does not divide layer \"line\" by positions"));
  assert_non_null(strstr(lines[1], "its value \"x\" has sequence_dim 1, but its value \"y\" has none"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tp_on_a_model_without_shard_rules_is_told),
      cmocka_unit_test(sequence_parallel_without_layers_for_it_is_told),
      cmocka_unit_test(recompute_without_a_layer_that_may_is_told),
      cmocka_unit_test(stage_3_that_keeps_everything_is_told),
      cmocka_unit_test(micro_batches_without_samples_are_told),
      cmocka_unit_test(a_forgotten_sequence_dim_is_told_with_its_value),
      cmocka_unit_test(bucket_bytes_that_the_first_bucket_leaves_nothing_to_are_told),
  };
  return cmocka_run_group_tests_name("idle settings", tests, NULL, NULL);
}
