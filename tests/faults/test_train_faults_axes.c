/* As test_train_faults.c, where ranks wait for each other along other axes than that of data too: the tensor axis
 * inside of callbacks, a pipeline for messages, and numbers that a pipeline learns a step late. There a rank may be in
 * its next step when another one is struck. Then: a rank that sleeps or dies is named by its rank in the communicator
 * of the trainer, on every other rank, whichever group of the mesh notices it, and nobody who waits for it is. */
#include <poll.h>

#include "support/share.h"
#include "support/tensor_trial.h"

enum { STRUCK_STEP = 1, MOST_STEPS = 4 };

typedef struct strike {
  tensor_trial t; /* first: a session is opened by it */
  int32_t rank;   /* that is struck */
  int number;     /* of its callback in STRUCK_STEP, from 0; past the last one: none */
  int frees;      /* the trainer, in place of a callback that fails */
  int ended;      /* written by that rank: the step had no such callback */
} strike;

static gsel_status step_until_struck(tensor_session* s, const strike* k, int step, gsel_error** err) {
  for (int number = 0;; ++number) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    const int struck = step == STRUCK_STEP && s->m->rank == k->rank && number == k->number;
    if (struck && k->frees) return GSEL_ERR_ABORTED;
    status = struck ? GSEL_ERR_IO : tensor_work(&work, s->m);
    status = gsel_trainer_complete(s->trainer, work.ticket, status, gsel_str_from(struck ? "struck" : ""), err);
    if (status) return status;
  }
}

static void be_struck(rank_run* run) {
  strike* k = (strike*)run->user;
  const int is_struck = run->rank == k->rank;
  tensor_session s;
  gsel_error* err = NULL;
  gsel_status status = GSEL_OK;
  run->timeout_s = 20;
  rank_ok(run, open_tensor(run, &s, &err), err);
  for (int i = 0; i < MOST_STEPS && !status; ++i) {
    status = step_until_struck(&s, k, i, &err);
    if (is_struck && i == STRUCK_STEP) k->ended = status == GSEL_OK;
  }
  if (status != GSEL_OK && k->frees) {
    gsel_trainer_free(s.trainer);
    s.trainer = NULL;
    if (!is_struck)
      rank_fails(run, status, err, GSEL_ERR_ABORTED, "the trainer was freed in the middle of a step", k->rank);
  } else if (status != GSEL_OK) {
    rank_fails(run, status, err, is_struck ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, "struck", k->rank);
    rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  }
  close_tensor(&s);
}

#define PP(schedule, more) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n" more
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
static const struct {
  const char *name, *section;
  int world;
} kRows[] = {
    {"tp and ddp",
     "[mesh]\ntensor = 2\n" TP
     "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\ncompress = "
     "\"low_rank\"\ncompress_rank = 1\ncompress_start = 0\n",
     4},
    {"pp 1f1b", "[mesh]\npipeline = 2\n" PP("1f1b", ""), 2},
    {"pp and zero 2", "[mesh]\npipeline = 2\n" PP("1f1b", "") "[strategy.data]\nplugin = \"zero\"\nstage = 2\n", 4},
    {"pp, optimistic steps", "[mesh]\npipeline = 2\n" PP("1f1b", "post_validate = \"on\"\n"), 2},
};
enum { N_ROWS = sizeof kRows / sizeof *kRows };

static void strike_each(int frees) {
  char config[1024];
  for (int i = 0; i < N_ROWS; ++i)
    for (int last = 0; last < 2; ++last) {
      snprintf(config, sizeof config, "%s" TENSOR_TRAIN "clip_norm = 1.0\n", kRows[i].section, 8, 2);
      strike k;
      memset(&k, 0, sizeof k);
      k.t = tensor_trial_of(config, NULL);
      k.rank = last ? kRows[i].world - 1 : 0;
      k.frees = frees;
      while (as_threads(kRows[i].world, be_struck, &k), !k.ended) ++k.number;
      print_message("  %d callbacks of rank %d, %s\n", k.number, (int)k.rank, kRows[i].name);
      assert_true(k.number > 5);
    }
}

static void a_callback_that_fails_is_an_error_on_every_rank(void** state) {
  (void)state;
  strike_each(0);
}

static void a_trainer_that_is_freed_in_a_step_ends_it_on_every_rank(void** state) {
  (void)state;
  strike_each(1);
}

/* ---- a rank that sleeps, a rank that dies ---------------------------------------------------------------- */

typedef struct absence {
  tensor_trial t; /* first: a session is opened by it */
  int32_t rank;   /* that is absent from one of its callbacks on */
  int number;     /* of that callback in STRUCK_STEP, from 0 */
  int dies;       /* sleeps until all others have their errors */
  volatile int32_t pid, told;
} absence;

static gsel_status step_until_absent(tensor_session* s, absence* a, int step, gsel_error** err) {
  for (int number = 0;; ++number) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(s->trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    if (step == STRUCK_STEP && s->m->rank == a->rank && number == a->number) {
      if (a->dies) raise(SIGKILL);
      const int others = gsel_comm_world_size(s->comm) - 1;
      await_step(&a->told, others);
      _exit(0);
    }
    status = tensor_work(&work, s->m);
    status = gsel_trainer_complete(s->trainer, work.ticket, status, gsel_str_from(""), err);
    if (status) return status;
  }
}

static void names_the_absent(rank_run* run) {
  absence* a = (absence*)run->user;
  tensor_session s;
  gsel_error* err = NULL;
  gsel_status status = GSEL_OK;
  char part[80];
  run->timeout_s = a->dies ? 30 : 1;
  if (run->rank == a->rank) a->pid = getpid();
  rank_ok(run, open_tensor(run, &s, &err), err);
  for (int i = 0; i < MOST_STEPS && !status; ++i) status = step_until_absent(&s, a, i, &err);
  __atomic_add_fetch(&a->told, 1, __ATOMIC_SEQ_CST);
  snprintf(part, sizeof part, a->dies ? "rank %d (pid %d) ended without" : "rank %d (pid %d) is late", (int)a->rank,
           (int)a->pid);
  const gsel_status first = a->dies ? GSEL_ERR_PEER : GSEL_ERR_TIMEOUT;
  rank_fails(run, status, err, status == GSEL_ERR_ABORTED ? GSEL_ERR_ABORTED : first, part, a->rank);
  close_tensor(&s);
}

static void run_absent(const char* name, const char* section, int32_t world, int dies) {
  char config[1024];
  snprintf(config, sizeof config, "%s" TENSOR_TRAIN "clip_norm = 1.0\n", section, 8, 2);
  absence* a = shared_memory(sizeof *a);
  for (int32_t victim = 0; victim<world; victim += world> 4 ? 3 : 1)
    for (int number = 1; number <= (dies ? 9 : 1); number += 4) {
      if (!in_share()) continue;
      print_message("  %s: rank %d %s at callback %d\n", name, (int)victim, dies ? "dies" : "sleeps", number);
      memset(a, 0, sizeof *a);
      a->t = tensor_trial_of(config, NULL);
      a->rank = victim;
      a->number = number;
      a->dies = dies;
      rank_run* runs = ranks_prepare(world, a);
      pid_t pids[RANKS_MAX];
      for (int32_t r = 0; r < world; ++r) pids[r] = rank_fork(&runs[r], names_the_absent);
      for (int32_t r = 0; r < world; ++r) waitpid(pids[r], NULL, 0);
      assert_int_equal(a->told, world - 1);
      ranks_verdict(runs, world);
    }
  munmap(a, sizeof *a);
}

static const struct {
  const char *name, *section;
  int world;
} kMeshes[] = {
    {"tp and pp", "[mesh]\ntensor = 2\npipeline = 2\n" TP PP("1f1b", ""), 4},
    {"tp and ddp", "[mesh]\ntensor = 2\n" TP "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\n", 4},
    {"pp and zero 2", "[mesh]\npipeline = 2\n" PP("1f1b", "") "[strategy.data]\nplugin = \"zero\"\nstage = 2\n", 4},
    {"tp, pp and ddp", "[mesh]\ntensor = 2\npipeline = 2\n" TP PP("1f1b", "") "[strategy.data]\nplugin = \"ddp\"\n", 8},
};

static void on_each_mesh(int dies) {
  for (size_t i = 0; i < sizeof kMeshes / sizeof *kMeshes; ++i)
    run_absent(kMeshes[i].name, kMeshes[i].section, kMeshes[i].world, dies);
}

static void a_rank_that_sleeps_is_named_on_every_rank(void** state) {
  (void)state;
  on_each_mesh(0);
}

static void a_rank_that_dies_is_named_on_every_rank(void** state) {
  (void)state;
  on_each_mesh(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_that_sleeps_is_named_on_every_rank),
      cmocka_unit_test(a_rank_that_dies_is_named_on_every_rank),
      cmocka_unit_test(a_callback_that_fails_is_an_error_on_every_rank),
      cmocka_unit_test(a_trainer_that_is_freed_in_a_step_ends_it_on_every_rank),
  };
  return cmocka_run_group_tests_name("train_faults_axes", tests, NULL, NULL);
}
