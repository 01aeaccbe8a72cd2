/* An evaluation that needs a larger arena than a training step, on devices that lack memory for it: every rank is told
 * by a rank that lacks it, the trainer goes on as if nobody had asked, and evaluates once there is memory. */
#include "fake/cuda/on_device.h"
#include "support/gap_model.h"

enum { STEPS = 2, BESIDE = 512 };

typedef struct lack {
  const char* more; /* of [train] */
  int world;
  int rank; /* whose device lacks memory; -1: all */
  float expected[3];
  double loss;
} lack;

static void have(int rank, uint64_t bytes) {
  ((void (*)(int, uint64_t))dlsym(cuda.library, "fake_cuda_have"))(rank, bytes);
}
static uint64_t bytes_of(int rank) {
  return ((uint64_t(*)(int, int))dlsym(cuda.library, "fake_cuda_bytes"))(rank, 0);
}

static void step_and_compare(rank_run* run, gap_session* s, float* expected, int records) {
  gsel_error* err = NULL;
  float w = 0;
  for (int i = 0; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_read_param(s->trainer, 0, &w, sizeof w, &err), err);
  if (records && run->rank == 0) *expected = w;
  rank_check(run, w != 2 && (records || w == *expected));
}

/* With memory for all. */
static void evaluates(rank_run* run) {
  lack* l = (lack*)run->user;
  gap_session s;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_error* err = NULL;
  rank_ok(run, gap_open(run, l->more, &s, &err), err);
  step_and_compare(run, &s, &l->expected[0], 1);
  step_and_compare(run, &s, &l->expected[1], 1);
  rank_ok(run, gsel_trainer_evaluate(s.trainer, 8, NULL, NULL, &report, &err), err);
  const gap_memory memory = gap_memory_of(s.trainer);
  rank_check(run, memory.peak_arena > memory.arena); /* else this model shows nothing any more */
  if (run->rank == 0) l->loss = report.loss;
  step_and_compare(run, &s, &l->expected[2], 1);
  gap_close(&s);
}

static void evaluates_once_it_can(rank_run* run) {
  lack* l = (lack*)run->user;
  gap_session s;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_error* err = NULL;
  const int lacks = l->rank < 0 || l->rank == run->rank;
  const char* why = lacks ? "values and windows needs " : "could not make its evaluation: values and windows needs ";
  rank_ok(run, gap_open(run, l->more, &s, &err), err);
  step_and_compare(run, &s, &l->expected[0], 0);
  const uint64_t held = bytes_of(run->rank), arena = gap_memory_of(s.trainer).arena;
  if (lacks) have(run->rank, held);
  for (int i = 0; i < 3; ++i) {
    rank_fails(run, gsel_trainer_evaluate(s.trainer, 8, NULL, NULL, NULL, &err), err,
               lacks ? GSEL_ERR_NOMEM : GSEL_ERR_PEER, why, lacks ? -1 : l->rank);
    rank_check(run, !lacks || (bytes_of(run->rank) == held && gap_memory_of(s.trainer).peak_arena == arena));
  }
  step_and_compare(run, &s, &l->expected[1], 0);
  have(run->rank, 0);
  rank_ok(run, gsel_trainer_evaluate(s.trainer, 8, NULL, NULL, &report, &err), err);
  rank_check(run, report.loss == l->loss && report.loss != 0);
  step_and_compare(run, &s, &l->expected[2], 0);
  gap_close(&s);
}

/* Another program takes the memory that the arena has given back. */
static void loses_its_arena(rank_run* run) {
  const lack* l = (const lack*)run->user;
  gap_session s;
  gsel_error* err = NULL;
  rank_ok(run, gap_open(run, l->more, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  have(run->rank, bytes_of(run->rank) - BESIDE);
  rank_fails(run, gsel_trainer_evaluate(s.trainer, 8, NULL, NULL, NULL, &err), err, GSEL_ERR_NOMEM,
             "values and windows needs ", -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  gap_close(&s);
  have(run->rank, 0);
}

static void try_to(rank_body body, lack* l) {
  on_transport = "nccl";
  on_card = l->world == 1 ? 0 : -1; /* of a trainer without a communicator */
  as_threads(l->world, body, l);
  on_card = -1;
  on_transport = NULL;
  no_violations();
}
static void lacks_memory(const char* more, int world, int rank) {
  lack l = {.more = more, .world = world, .rank = rank};
  print_message("  %d ranks, rank %d lacks memory\n", world, rank);
  try_to(evaluates, &l);
  try_to(evaluates_once_it_can, &l);
}

static void of_one_rank(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  lacks_memory("device = \"cuda:0\"\n", 1, -1);
}
static void of_several_ranks(void** state) {
  (void)state;
  for (int rank = -1; rank < 3; ++rank) lacks_memory("", 3, rank);
}
static void without_memory_for_what_it_had_the_trainer_ends(void** state) {
  lack one = {.more = "device = \"cuda:0\"\n", .world = 1}, two = {.more = "", .world = 2};
  (void)state;
  try_to(loses_its_arena, &one);
  try_to(loses_its_arena, &two);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_one_rank),
      cmocka_unit_test(of_several_ranks),
      cmocka_unit_test(without_memory_for_what_it_had_the_trainer_ends),
  };
  return cmocka_run_group_tests_name("train_evaluation", tests, NULL, NULL);
}
