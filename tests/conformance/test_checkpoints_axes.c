/* Checkpoints over all axes: what was saved under one layout of data, tensor, context and pipeline axes loads under
 * another, in 16 bits with a loss scale that overflows and rises, and with both moments of AdamW; training goes on to
 * the bits of one rank that never stopped. Sums of the model are exact. AdamW takes its steps at a rate of 0, so that
 * parameters stay integers while moments grow, and a last step with a rate that lets parameters show the moments.
 * Where sums are not exact, layouts that docs/equality.md calls equal load what each other saved. */
#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"
#include "support/share.h"

static char folder[256];

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "checkpoints") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}
static int begin_again(void** state) {
  return end(state) || begin(state);
}

static const char* path_of(int layout) {
  static char path[300];
  snprintf(path, sizeof path, "%s/%d", folder, layout);
  return path;
}

/* ---- ways of training ---- */

struct way {
  const char *name, *train;
  void (*before_step)(rank_run* run, session* s, int step);
  unsigned share; /* each how many-th pair of layouts is tried; GSEL_TEST_SHARE=1: every one */
  int updates;    /* steps that are not skipped */
  double scale;   /* of the loss, in the end */
};

/* Of two overflows, that a save stands between, the second halves the scale. */
static void overflow_twice(rank_run* run, session* s, int step) {
  (void)run;
  const int at = step == BEFORE - 1 || step == STEPS - 1 ? step : -1;
  s->m.overflow_at_step = at, s->m.batch = 9;
  if (s->transformer) s->transformer->overflow_at_step = at, s->transformer->batch = 9;
}

/* The rate of a load is that of the save. */
static void rest_before_the_last_step(rank_run* run, session* s, int step) {
  gsel_error* err = NULL;
  if (step == 0) rank_ok(run, gsel_trainer_set_learning_rate(s->trainer, 0, &err), err);
  if (step == STEPS - 1) rank_ok(run, gsel_trainer_set_learning_rate(s->trainer, 0.5, &err), err);
}
static void rest_and_overflow(rank_run* run, session* s, int step) {
  s->transformer->overflow_at_step = step == BEFORE - 1 ? step : -1, s->transformer->batch = 9;
  rest_before_the_last_step(run, s, step);
}

#define ADAMW "[train]\noptimizer = \"adamw\"\nlearning_rate = 0.25\nweight_decay = 0.125\nbatch = 9\nseed = 5\n"
#define FP16 "precision = \"fp16\"\nloss_scale_initial = 1024.0\n"
static const struct way kSixteenBits[] = {
    {"lion, bf16", LION "precision = \"bf16\"\n", NULL, 9, STEPS, 1},
    {"lion, fp16, overflows", LION FP16, overflow_twice, 9, STEPS - 2, 512},
    {"lion, fp16, the scale rises", LION FP16 "loss_scale_window = 3\n", NULL, 9, STEPS, 2048},
};
static const struct way kAdamw[] = {
    {"adamw", ADAMW, rest_before_the_last_step, 4, STEPS, 1},
    {"adamw, fp16, overflows", ADAMW FP16 "loss_scale_hysteresis = 1\n", rest_and_overflow, 9, STEPS - 1, 512},
};

/* ---- layouts of a table ---- */

struct table {
  const struct layout* layouts;
  int n;
  const small_transformer* transformer; /* NULL: the exact model */
  int random;
  const struct way* way;
  unsigned offset; /* of the pairs that are tried */
  struct ending* ending;
};

static struct going_on going(const struct table* table, int layout, const char* path) {
  static char text[1024];
  struct going_on what;
  memset(&what, 0, sizeof what);
  snprintf(text, sizeof text, "%s%s%s", table->layouts[layout].sections, table->way->train,
           table->layouts[layout].more);
  what.t = plain(text, NULL);
  what.t.transformer = table->transformer;
  what.t.random = table->random;
  what.path = path;
  what.before_step = table->way->before_step;
  what.ending = table->ending;
  return what;
}

/* It is one state, whoever saved it. */
static void save_under_each(const struct table* table) {
  gsel_checkpoint* first = NULL;
  uint64_t written = 0;
  for (int a = 0; a < table->n; ++a) {
    const struct going_on what = going(table, a, path_of(a));
    const uint64_t bytes = saved_on(table->layouts[a].ranks, &what);
    gsel_checkpoint* const saved = opened_checkpoint(what.path);
    if (a == 0) first = saved, written = bytes;
    assert_int_equal(bytes, written); /* each element once */
    same_state(first, saved);
    if (a > 0) gsel_checkpoint_free(saved);
  }
  gsel_checkpoint_free(first);
}

/* The first layout is that of the run that never stops. */
static void goes_on_under_each(const struct table* table) {
  struct going_on whole = going(table, 0, NULL);
  assert_int_equal(begin_again(NULL), 0);
  as_threads(table->layouts[0].ranks, never_stops, &whole);
  assert_int_equal(table->ending->numbers.updates, table->way->updates);
  assert_true(table->ending->numbers.loss_scale == table->way->scale);
  save_under_each(table);
  for (int a = 0; a < table->n; ++a)
    for (int b = 0; b < table->n; ++b) {
      const bool is_left_out = ((unsigned)(a + b) + table->offset) % table->way->share != 0;
      if ((is_left_out && !getenv("GSEL_TEST_SHARE")) || !in_share()) continue;
      struct going_on what = going(table, b, path_of(a));
      print_message("  %s: saved under %s, loaded under %s\n", table->way->name, table->layouts[a].name,
                    table->layouts[b].name);
      as_threads(table->layouts[b].ranks, load_and_go_on, &what);
    }
}

/* ---- all axes ---- */

static void over_all_axes(const struct way* ways, size_t n) {
  small_transformer* const m = (small_transformer*)calloc(1, sizeof *m); /* large */
  m->overflow_at_step = m->fail_at_step = -1;
  for (size_t w = 0; w < n; ++w) {
    struct table table = {kAxes, N_AXES, m, 0, &ways[w], (unsigned)w, shared_ending()};
    goes_on_under_each(&table);
    const double scale = strstr(ways[w].train, "fp16") ? 2048 : 1; /* a power of two, at most */
    assert_true(table.ending->out.largest / scale < 16777216.0 / 8);
    free_ending(table.ending);
  }
  free(m);
}

static void sixteen_bits_and_loss_scales_go_on_over_all_axes(void** state) {
  (void)state;
  over_all_axes(kSixteenBits, sizeof kSixteenBits / sizeof *kSixteenBits);
}
static void both_moments_of_adamw_go_on_over_all_axes(void** state) {
  (void)state;
  over_all_axes(kAdamw, sizeof kAdamw / sizeof *kAdamw);
}

/* ---- numbers that are no integers ---- */

/* Equal by docs/equality.md, with the same number of data ranks and one micro-batch. */
static const struct layout kOverData[] = {
    {"ddp", DDP(""), "", 2},
    {"ddp, a bucket per parameter", DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n"), "", 2},
    {"zero 1, offload", ZERO("1", "offload = \"state\"\n"), "", 2},
    {"zero 2", ZERO("2", "bucket_bytes = 1\n"), "", 2},
    {"zero 3", ZERO("3", ALL_SHARDED), "", 2},
};
static const struct layout kOverPipelines[] = {
    {"gpipe", PIPELINE("2", "schedule = \"gpipe\"\n"), OF_3, 2},
    {"1f1b", PIPELINE("2", "schedule = \"1f1b\"\n"), OF_3, 2},
};
static const struct layout kOverPipelinesAndData[] = {
    {"1f1b and ddp", PIPELINE("2", "schedule = \"1f1b\"\n") DDP(""), OF_1, 4},
    {"gpipe and zero 1", PIPELINE("2", "schedule = \"gpipe\"\n") ZERO("1", ""), OF_1, 4},
};
static const struct layout kOverTensor[] = {
    {"tp and ddp", MESH("tensor = 2\n") TP DDP(""), "", 4},
    {"tp and zero 1", MESH("tensor = 2\n") TP ZERO("1", "bucket_bytes = 1\n"), "", 4},
    {"tp and zero 3", MESH("tensor = 2\n") TP ZERO("3", ALL_SHARDED), "", 4},
};
static const struct layout kOverContext[] = {
    {"cp and ddp", MESH("context = 2\n") CP DDP(""), "", 4},
    {"cp and zero 1", MESH("context = 2\n") CP ZERO("1", ""), "", 4},
};
#define TABLE(layouts) layouts, (int)(sizeof layouts / sizeof *layouts)

#define REAL(more) "[train]\noptimizer = \"adamw\"\nlearning_rate = 0.01\nbatch = 9\nseed = 5\n" more
static const struct way kReal[] = {
    {"adamw", REAL(""), NULL, 1, STEPS, 1},
    {"adamw, fp16, overflows", REAL(FP16), overflow_twice, 1, STEPS - 2, 512},
};

static void real_numbers_go_on_where_layouts_are_equal(void** state) {
  (void)state;
  small_transformer* const m = (small_transformer*)calloc(1, sizeof *m);
  m->overflow_at_step = m->fail_at_step = -1;
  m->random = 1;
  const struct table tables[] = {
      {TABLE(kOverData), NULL, 1, NULL, 0, NULL},          {TABLE(kOverPipelines), NULL, 1, NULL, 0, NULL},
      {TABLE(kOverPipelinesAndData), m, 1, NULL, 0, NULL}, {TABLE(kOverTensor), m, 1, NULL, 0, NULL},
      {TABLE(kOverContext), m, 1, NULL, 0, NULL},
  };
  for (size_t t = 0; t < sizeof tables / sizeof *tables; ++t)
    for (size_t w = 0; w < sizeof kReal / sizeof *kReal; ++w) {
      struct table table = tables[t];
      table.way = &kReal[w];
      table.ending = shared_ending();
      goes_on_under_each(&table);
      free_ending(table.ending);
    }
  free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sixteen_bits_and_loss_scales_go_on_over_all_axes),
      cmocka_unit_test(both_moments_of_adamw_go_on_over_all_axes),
      cmocka_unit_test(real_numbers_go_on_where_layouts_are_equal),
  };
  return cmocka_run_group_tests_name("checkpoints over all axes", tests, begin, end);
}
