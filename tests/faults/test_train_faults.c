/* A step of every kind of strategy is struck at each of its callbacks in turn: the callback fails, or the trainer is freed
 * there. Every rank gets an error that says why, none waits, and nothing of the trainer is used once it is gone. */
#include "support/trainer_trial.h"

enum { STRUCK_STEP = 1, WORLD = 3 };

/* An optimizer that has parameters end whole in shards. */
static gsel_status whole_step(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) c->values[i] -= (float)c->learning_rate * c->gradient[i];
  return GSEL_OK;
}

static const char* const kSections[] = {
    "",
    DP("bucket_bytes = 1\n"),
    DDP("first_bucket_bytes = 1\nbucket_bytes = 1\n"),
    DDP("first_bucket_bytes = 1\nbucket_bytes = 1\ncompress = \"f16\"\n"),
    DDP("first_bucket_bytes = 1\nbucket_bytes = 1\ncompress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 0\n"),
    ZERO("1", "bucket_bytes = 1\n"),
    ZERO("2", "bucket_bytes = 1\n"),
    ZERO("3", ALL_SHARDED),
    ZERO("3", ALL_SHARDED "keep = \"step\"\noffload = \"all\"\n"),
};
enum { N_SECTIONS = sizeof kSections / sizeof *kSections };

typedef struct strike {
  trial t;    /* first: a session is opened by it */
  int number; /* of the callback in STRUCK_STEP, from 0; past the last one: none */
  int frees;  /* the trainer, in place of a callback that fails */
  int ended;  /* written by rank 0: the step had no such callback */
} strike;

/* A step, pulled; in the struck one rank 0's callback `number` is not completed, or as a failure. */
static gsel_status pull_until_struck(session* s, const strike* k, gsel_error** err) {
  for (int number = 0;; ++number) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    const int struck = number == k->number;
    if (struck && k->frees) return GSEL_ERR_ABORTED;
    status = work.input ? exact_data(work.input, NULL) : call_layer(&work, &s->m);
    if (struck) status = GSEL_ERR_IO;
    status = gsel_trainer_complete(s->trainer, work.ticket, status, gsel_str_from(struck ? "struck" : ""), err);
    if (status) return status;
  }
}

static void be_struck(rank_run* run) {
  strike* k = (strike*)run->user;
  session s;
  gsel_error* err = NULL;
  run->timeout_s = 20;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < STRUCK_STEP; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  const gsel_status status =
      run->rank == 0 ? pull_until_struck(&s, k, &err) : gsel_trainer_step(s.trainer, NULL, &err);
  if (run->rank == 0) k->ended = status == GSEL_OK;
  if (status != GSEL_OK && k->frees) {
    gsel_trainer_free(s.trainer);
    s.trainer = NULL;
    if (run->rank > 0)
      rank_fails(run, status, err, GSEL_ERR_ABORTED, "the trainer was freed in the middle of a step", 0);
  } else if (status != GSEL_OK) {
    rank_fails(run, status, err, run->rank == 0 ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, "struck", 0);
    rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  }
  close_session(&s);
}

static void strike_each_callback(const char* section, const gsel_optimizer_options* optimizer, int frees) {
  char config[512];
  snprintf(config, sizeof config, "%s" TRAIN("6", "microbatch = 1\n"), section);
  strike k;
  memset(&k, 0, sizeof k);
  k.t = plain(config, NULL);
  k.t.optimizer = optimizer;
  k.frees = frees;
  while (as_threads(WORLD, be_struck, &k), !k.ended) ++k.number;
  print_message("  %d callbacks of %s", k.number, *section ? section : "the default\n");
  assert_true(k.number > 10);
}

static void strike_each_kind(int frees) {
  for (int i = 0; i < N_SECTIONS; ++i) strike_each_callback(kSections[i], NULL, frees);
  gsel_optimizer_options whole = GSEL_OPTIMIZER_OPTIONS_INIT;
  whole.needs = GSEL_NEEDS_WHOLE_PARAM;
  whole.step = whole_step;
  strike_each_callback(ZERO("2", "bucket_bytes = 1\n"), &whole, frees);
  strike_each_callback(ZERO("3", ALL_SHARDED), &whole, frees);
}

static void a_callback_that_fails_is_an_error_on_every_rank(void** state) {
  (void)state;
  strike_each_kind(0);
}

static void a_trainer_that_is_freed_in_a_step_ends_it_on_every_rank(void** state) {
  (void)state;
  strike_each_kind(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_callback_that_fails_is_an_error_on_every_rank),
      cmocka_unit_test(a_trainer_that_is_freed_in_a_step_ends_it_on_every_rank),
  };
  return cmocka_run_group_tests_name("train_faults", tests, NULL, NULL);
}
