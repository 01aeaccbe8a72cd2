/* Training that goes on with other ranks on meshes with a tensor or a context axis: a rank is killed at callbacks of a
 * step, or ranks join between two; the mesh becomes another one, and losses and parameters are those of one rank that
 * trained alone, whose sums are exact, and so those of any change that was planned. */
#include "support/elastic_trial.h"

struct case_of {
  const char *name, *sections, *more;
  const char* afterwards; /* sections; NULL: the same, with other sizes that are `auto` */
  int ranks;
  const char* victims; /* a digit each */
  int lost;            /* most steps that are trained again */
  bool checkpoints;    /* there are some */
};

#define ELASTIC "elastic = \"on\"\n"
#define REDUNDANT "redundancy = 1\n"

static const struct case_of kCases[] = {
    {"tp with ddp, elastic, then tp of three", MESH("tensor = 2\n") TP DDP(""), ELASTIC, MESH("tensor = 3\n") TP, 4,
     "0", 0, false},
    {"tp with ddp of three, elastic, then of two", MESH("tensor = 2\n") TP DDP(""), ELASTIC, NULL, 6, "14", 0, false},
    {"tp with zero 3, redundant, then tp of three", MESH("tensor = 2\n") TP ZERO("3", ALL_SHARDED), REDUNDANT,
     MESH("tensor = 3\n") TP_SP, 4, "1", 1, false},
    {"tp of three, redundant, bf16, then cp", MESH("tensor = 3\n") TP_SP, REDUNDANT "precision = \"bf16\"\n",
     MESH("context = 2\n") CP, 3, "2", 1, false},
    {"tp with pp, redundant, then pp of three", MESH("tensor = 2\npipeline = 2\n") TP PP("1f1b"), REDUNDANT OF_3,
     PIPELINE("3", "schedule = \"gpipe\"\n"), 4, "3", 1, false},
    {"tp of three, from a checkpoint, then zero 3", MESH("tensor = 3\n") TP, "", ZERO("3", ALL_SHARDED), 3, "0", 2,
     true},
    {"cp with ddp, elastic, then cp of three", MESH("context = 2\n") CP DDP(""), ELASTIC, MESH("context = 3\n") CP, 4,
     "2", 0, false},
    {"cp with zero 1, redundant, fp16, then cp of three", MESH("context = 2\n") CP ZERO("1", ""),
     REDUNDANT "precision = \"fp16\"\n", MESH("context = 3\n") CP, 4, "0", 1, false},
    {"cp of three, redundant, then tp", MESH("context = 3\n") CP, REDUNDANT, MESH("tensor = 2\n") TP, 3, "1", 1, false},
    {"cp, redundant, then a single rank", MESH("context = 2\n") CP, REDUNDANT, "", 2, "0", 1, false},
    {"cp with pp, elastic, then tp of three", MESH("context = 2\npipeline = 2\n") CP PP("1f1b"), ELASTIC OF_3,
     MESH("tensor = 3\n") TP, 4, "1", 0, false},
    {"tp with pp, from a checkpoint, then cp of three", MESH("tensor = 2\npipeline = 2\n") TP_SP PP("1f1b"), OF_3,
     MESH("context = 3\n") CP, 4, "1", 2, true},
};
enum { N_CASES = sizeof kCases / sizeof *kCases, STRIDE = 7 };

static small_transformer* described(void) {
  small_transformer* const m = (small_transformer*)calloc(1, sizeof *m); /* large */
  m->overflow_at_step = m->fail_at_step = -1;
  return m;
}

static void at_some_callbacks(struct change* world, int i) {
  world->at = STRIDE * i + world->victims[0];
}

static void strike_at_some_callbacks(const struct case_of* of, const small_transformer* m, outcome* expected) {
  char config[1024], afterwards[1024];
  snprintf(config, sizeof config, "%s" LION "%s", of->sections, of->more);
  if (of->afterwards) snprintf(afterwards, sizeof afterwards, "%s" LION "%s", of->afterwards, of->more);
  struct change c = change_of(config, expected);
  c.t.transformer = m;
  c.afterwards = of->afterwards ? afterwards : NULL;
  c.has_folder = of->checkpoints;
  c.lost = of->lost;
  while (of->victims[c.n_victims]) c.victims[c.n_victims] = of->victims[c.n_victims] - '0', ++c.n_victims;
  const struct losses losses = lose_ranks_in_turn(&c, of->ranks, at_some_callbacks);
  print_message("  %s: %s lost at %d moments; from ranks %d times, from a checkpoint %d\n", of->name, of->victims,
                losses.worlds, losses.from_ranks, losses.from_checkpoint);
  assert_true(losses.worlds - losses.ended > 2);
  assert_int_equal(of->checkpoints ? losses.from_ranks : losses.from_checkpoint, 0);
}

static void a_rank_of_a_tensor_or_context_axis_is_lost(void** state) {
  (void)state;
  small_transformer* const m = described();
  outcome* expected = transformer_trained_alone(m);
  for (int i = 0; i < N_CASES; ++i) strike_at_some_callbacks(&kCases[i], m, expected);
  free_outcomes(expected);
  free(m);
}

/* ---- ranks that join ---- */

static const struct {
  const char *name, *before, *afterwards, *more;
  int ranks, n_new;
} kGrown[] = {
    {"tp of two, then of four", MESH("tensor = 2\n") TP, MESH("tensor = 4\n") TP_SP, "", 2, 2},
    {"one rank, then tp of three", "", MESH("tensor = 3\n") TP, "", 1, 2},
    {"cp, then with zero 3", MESH("context = 2\n") CP, MESH("context = 2\n") CP ZERO("3", ALL_SHARDED), "", 2, 2},
    {"zero 3, then cp with pp", ZERO("3", ALL_SHARDED), MESH("context = 2\npipeline = 2\n") CP PP("1f1b"), OF_3, 3, 1},
    {"tp, then tp with pp and zero 1", MESH("tensor = 2\n") TP,
     MESH("tensor = 2\npipeline = 2\n") TP PP("gpipe") ZERO("1", ""), "microbatch = 1\n", 2, 6},
};

static void ranks_join_a_tensor_or_context_axis(void** state) {
  (void)state;
  small_transformer* const m = described();
  outcome* expected = transformer_trained_alone(m);
  for (size_t i = 0; i < sizeof kGrown / sizeof *kGrown; ++i) {
    char config[1024], afterwards[1024];
    const int ranks = kGrown[i].ranks + kGrown[i].n_new;
    struct losses sum = {0, 0, 0, 0, 0};
    snprintf(config, sizeof config, "%s" LION "%s", kGrown[i].before, kGrown[i].more);
    snprintf(afterwards, sizeof afterwards, "%s" LION "%s", kGrown[i].afterwards, kGrown[i].more);
    struct change c = change_of(config, expected);
    c.t.transformer = m;
    c.afterwards = afterwards;
    c.strikes = IN_JOIN;
    c.n_new = kGrown[i].n_new;
    print_message("  %s\n", kGrown[i].name);
    lose_ranks(&c, 1, ranks, &sum);
    assert_int_equal(sum.from_ranks, ranks);
  }
  free_outcomes(expected);
  free(m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_of_a_tensor_or_context_axis_is_lost),
      cmocka_unit_test(ranks_join_a_tensor_or_context_axis),
  };
  return cmocka_run_group_tests_name("elastic over all axes", tests, NULL, NULL);
}
