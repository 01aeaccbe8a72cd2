/* What docs/equality.md promises, bit for bit, with real numbers: a loop written from that page alone, without a
 * communicator, gives the parameters and losses that gsel gives under each strategy. */
#include "support/equality_reference.h"

enum { STEPS = 3 };

typedef struct trial {
  eq_setting setting;
  char config[1024];
  float params[EQ_ELEMS];
  double losses[STEPS];
} trial;

static void expect_equal(rank_run* run) {
  const trial* t = (const trial*)run->user;
  eq_session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  float params[EQ_ELEMS];
  rank_ok(run, eq_open(run, t->config, &s, &err), err);
  for (int i = 0; i < STEPS; ++i) {
    rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
    if (report.loss == t->losses[i]) continue;
    snprintf(run->failure, sizeof run->failure, "rank %d, step %d: expected loss %.17g, got %.17g", (int)run->rank, i,
             t->losses[i], report.loss);
    return;
  }
  rank_ok(run, eq_params(s.trainer, params, &err), err);
  for (int k = 0; k < EQ_ELEMS; ++k)
    if (params[k] != t->params[k]) {
      snprintf(run->failure, sizeof run->failure, "rank %d, element %d: expected %.9g, got %.9g", (int)run->rank, k,
               t->params[k], params[k]);
      return;
    }
  eq_close(&s);
}

static void compare(eq_setting setting, const char* sections) {
  trial t = {.setting = setting};
  eq_optimizer* o = &t.setting.optimizer;
  if (!o->name)
    *o = (eq_optimizer){.name = "sgd", .learning_rate = 0.25, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
  snprintf(t.config, sizeof t.config,
           "%s[train]\noptimizer = \"%s\"\nlearning_rate = %.17g\nweight_decay = %.17g\nmomentum = %.17g\n"
           "beta1 = %.17g\nbeta2 = %.17g\nepsilon = %.17g\nwarmup_steps = %d\nbatch = %d\nmicrobatches = %d\n",
           sections, o->name, o->learning_rate, o->weight_decay, o->momentum, o->beta1, o->beta2, o->epsilon,
           o->warmup_steps, setting.batch, setting.microbatches);
  eq_reference(&t.setting, STEPS, t.params, t.losses);
  print_message("  %d ranks, %d micro-batches\n%s", setting.ranks * setting.tensor * setting.pipeline,
                setting.microbatches, sections);
  as_threads(setting.ranks * setting.tensor * setting.pipeline, expect_equal, &t);
}

#define DATA(plugin) "[strategy.data]\nplugin = \"" plugin "\"\n"
#define ZERO(stage) DATA("zero") "stage = " stage "\n"

/* A batch of 11 leaves uneven shards. */
static void data_strategies_equal_the_loop(void** state) {
  (void)state;
  static const struct {
    enum eq_way way;
    const char* sections;
  } kinds[] = {
      {EQ_PER_STEP, DATA("ddp")},
      {EQ_PER_STEP, DATA("ddp") "bucket_bytes = 64\nfirst_bucket_bytes = 1\noverlap = false\n"},
      {EQ_PER_STEP, ZERO("1")},
      {EQ_PER_STEP, ZERO("1") "bucket_bytes = 64\n"},
      {EQ_PER_MICROBATCH, ZERO("2")},
      {EQ_PER_MICROBATCH, ZERO("3")},
      {EQ_PER_MICROBATCH, ZERO("3") "persist_elems = 0\nkeep = \"step\"\n"},
      {EQ_MASTER, DATA("dp")},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k)
    for (int ranks = 1; ranks <= 3; ++ranks)
      for (int m = 1; m <= 3; ++m) {
        compare(
            (eq_setting){
                .way = kinds[k].way, .ranks = ranks, .tensor = 1, .batch = 11, .microbatches = m, .pipeline = 1},
            kinds[k].sections);
      }
  for (int m = 1; m <= 2; ++m)
    compare((eq_setting){.way = EQ_MASTER, .ranks = 3, .tensor = 1, .batch = 12, .microbatches = m, .pipeline = 1},
            DATA("dp"));
}

/* The rules alone in plain C, from the page. */
static void every_built_in_optimizer_equals_the_loop(void** state) {
  (void)state;
  static const eq_optimizer optimizers[] = {
      {.name = "adamw", .learning_rate = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
      {.name = "adamw",
       .learning_rate = 3e-3,
       .weight_decay = 0.01,
       .beta1 = 0.8,
       .beta2 = 0.95,
       .epsilon = 1e-6,
       .warmup_steps = 2},
      {.name = "adam", .learning_rate = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
      {.name = "lion", .learning_rate = 0.003, .weight_decay = 0.3, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
      {.name = "sgd", .learning_rate = 0.1, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
      {.name = "sgd",
       .learning_rate = 0.1,
       .weight_decay = 0.03,
       .momentum = 0.9,
       .beta1 = 0.9,
       .beta2 = 0.99,
       .epsilon = 1e-8},
      {.name = "sign_sgd", .learning_rate = 0.01, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
  };
  static const struct {
    enum eq_way way;
    const char* sections;
  } kinds[] = {{EQ_PER_STEP, DATA("ddp")},
               {EQ_PER_STEP, ZERO("1") "bucket_bytes = 64\n"},
               {EQ_PER_MICROBATCH, ZERO("3") "persist_elems = 0\n"}};
  for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; ++i)
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k)
      for (int ranks = 1; ranks <= 3; ranks += 2) {
        print_message("  %s\n", optimizers[i].name);
        compare((eq_setting){.way = kinds[k].way,
                             .ranks = ranks,
                             .tensor = 1,
                             .batch = 11,
                             .microbatches = 2,
                             .pipeline = 1,
                             .optimizer = optimizers[i]},
                kinds[k].sections);
      }
}

static void tensor_ranks_equal_the_loop(void** state) {
  (void)state;
  for (int tensor = 2; tensor <= 4; ++tensor) {
    char sections[128];
    snprintf(sections, sizeof sections, "[mesh]\ntensor = %d\n[strategy.tensor]\nplugin = \"tp\"\n", tensor);
    compare(
        (eq_setting){.way = EQ_PER_STEP, .ranks = 1, .tensor = tensor, .batch = 6, .microbatches = 2, .pipeline = 1},
        sections);
  }
  compare((eq_setting){.way = EQ_PER_STEP, .ranks = 2, .tensor = 2, .batch = 7, .microbatches = 2, .pipeline = 1},
          "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n" ZERO("1"));
  compare((eq_setting){.way = EQ_PER_MICROBATCH, .ranks = 2, .tensor = 2, .batch = 7, .microbatches = 2, .pipeline = 1},
          "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n" ZERO("2"));
}

/* Embedding and head are on different pipeline ranks. In a V they are on one: the order is that of the row of pipeline
 * rank 0. */
static void pipelines_equal_the_loop(void** state) {
  (void)state;
  static const struct {
    const char *schedule, *cuts;
    int chunks;
  } kinds[] = {
      {"naive", "down", 1},
      {"gpipe", "down", 1},
      {"1f1b", "down", 1},
      {"zb-h1", "down", 1},
      {"zb-h2", "down", 1},
      {"interleaved-1f1b", "up,down,head", 2},
      {"zb-v", "up,down,head", 2},
      {"dualpipe-v", "up,down,head", 2},
      {"interleaved-zb", "up,down,head", 2},
  };
  static const char* const data[] = {DATA("ddp"), ZERO("1")};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k)
    for (int ranks = 1; ranks <= 2; ++ranks) {
      char sections[384];
      snprintf(sections, sizeof sections,
               "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\ncuts = \"%s\"\n%s",
               kinds[k].schedule, kinds[k].cuts, data[ranks - 1]);
      compare((eq_setting){.way = EQ_PER_STEP,
                           .ranks = ranks,
                           .tensor = 1,
                           .batch = 8 * ranks,
                           .microbatches = 4,
                           .pipeline = 2,
                           .schedule = kinds[k].schedule,
                           .chunks = kinds[k].chunks},
              sections);
    }
}

static void pipelines_that_reduce_each_micro_batch_equal_the_loop(void** state) {
  (void)state;
  static const char* const schedules[] = {"gpipe", "1f1b", "zb-h1"};
  static const char* const data[] = {ZERO("2"), ZERO("3") "persist_elems = 0\n"};
  for (size_t k = 0; k < 6; ++k) {
    char sections[384];
    snprintf(sections, sizeof sections,
             "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\ncuts = \"down\"\n%s",
             schedules[k / 2], data[k % 2]);
    compare((eq_setting){.way = EQ_PER_MICROBATCH,
                         .ranks = 2,
                         .tensor = 1,
                         .batch = 12,
                         .microbatches = 3,
                         .pipeline = 2,
                         .schedule = schedules[k / 2],
                         .chunks = 1},
            sections);
  }
}

static void all_axes_together_equal_the_loop(void** state) {
  (void)state;
  compare((eq_setting){.way = EQ_PER_STEP,
                       .ranks = 2,
                       .tensor = 2,
                       .batch = 8,
                       .microbatches = 2,
                       .pipeline = 2,
                       .schedule = "1f1b",
                       .chunks = 1},
          "[mesh]\ntensor = 2\npipeline = 2\n[strategy.tensor]\nplugin = \"tp\"\n[strategy.pipeline]\nplugin = \"pp\"\n"
          "schedule = \"1f1b\"\ncuts = \"down\"\n" ZERO("1"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(data_strategies_equal_the_loop),
      cmocka_unit_test(every_built_in_optimizer_equals_the_loop),
      cmocka_unit_test(tensor_ranks_equal_the_loop),
      cmocka_unit_test(pipelines_equal_the_loop),
      cmocka_unit_test(pipelines_that_reduce_each_micro_batch_equal_the_loop),
      cmocka_unit_test(all_axes_together_equal_the_loop),
  };
  return cmocka_run_group_tests_name("equality", tests, NULL, NULL);
}
