/* What becomes of a trainer whose device is lost in the middle of a step, on each axis: a kernel that ends CUDA in its
 * process, or a card that falls off the bus at some call of the driver. Every rank gets an error with the device and
 * what was wrong with it, the trainers are freed, and the same processes train on the host and get the bits that they
 * got before. And a card that another process holds. */
#include "fake/cuda/on_device.h"
#include "support/scratch.h"
#include "support/trainer_trial.h"

enum { RANKS = 2, MOST_STEPS = 40, ILLEGAL_ADDRESS = 700, GONE = 999 };

typedef struct loss {
  const char *transport, *sections;
  small_transformer* transformer; /* NULL: the exact model */
  int victim;
  int error;
  int at; /* the kernel that fails, or the call that finds the device gone; from 1, of the first step or the next */
  int has_begun;    /* one step was made before */
  int32_t* n_ready; /* ranks that have come to this step; shared */
} loss;

static trial trial_of_loss(const loss* l, const char* config, outcome* out) {
  trial t = plain(config, out);
  t.transformer = l->transformer;
  return t;
}

/* ---- the host ---- */

static void trains_on_the_host(rank_run* run, const trial* t, int ranks) {
  rank_run own = *run;
  on_transport = NULL;
  own.user = (void*)(uintptr_t)t;
  own.world_size = ranks;
  own.rank = ranks == 1 ? 0 : run->rank;
  train(&own);
  memcpy(run->failure, own.failure, sizeof run->failure);
}

/* ---- the device ---- */

static void arm(const loss* l) {
  const char* how = l->error == GONE ? "fake_cuda_lose" : "fake_cuda_fail";
  ((void (*)(int, int))dlsym(cuda.library, how))(l->at, l->error);
}

/* What the driver says of it. */
static void say_loss(char* text, size_t size, int device, int error) {
  snprintf(text, size, "on device %d: CUDA_ERROR_%s (%d)", device, error == GONE ? "UNKNOWN" : "ILLEGAL_ADDRESS",
           error);
}

static void trains_until_its_device_is_lost(rank_run* run, const loss* l, const char* config) {
  trial t = trial_of_loss(l, config, NULL);
  rank_run own = *run;
  session s;
  gsel_error* err = NULL;
  char text[64];
  own.user = &t;
  on_transport = l->transport;
  rank_ok(run, open_session(&own, &s, &err), err);
  if (l->has_begun) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  __atomic_add_fetch(l->n_ready, 1, __ATOMIC_SEQ_CST);
  await_step(l->n_ready, RANKS);
  if (run->rank == l->victim) arm(l);
  gsel_status status = GSEL_OK;
  for (int i = 0; i < MOST_STEPS && !status; ++i) status = gsel_trainer_step(s.trainer, NULL, &err);
  say_loss(text, sizeof text, l->victim, l->error);
  /* Others hear it from the trainer, or from the victim's communicator, whose thread may meet it first or later. */
  const int is_own = status == GSEL_ERR_DEVICE || status == GSEL_ERR_STATE;
  rank_fails(run, status, err, is_own ? status : GSEL_ERR_ABORTED, text, run->rank == l->victim ? -1 : l->victim);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
  rank_check(run, cuda.violations() == 0);
}

/* In this process, for good. */
static void is_refused_its_device(rank_run* run, const loss* l) {
  char config[256], text[64];
  gsel_error* err = NULL;
  session s;
  snprintf(config, sizeof config, TRAIN("6", "device = \"cuda:%d\"\n"), l->victim);
  trial t = plain(config, NULL);
  rank_run own = *run;
  t.without_comm = 1;
  own.user = &t;
  say_loss(text, sizeof text, l->victim, l->error);
  rank_fails(run, open_session(&own, &s, &err), err, GSEL_ERR_DEVICE, text, -1);
  close_session(&s);
}

static void goes_on_without_its_device(rank_run* run) {
  const loss* l = (const loss*)run->user;
  char alone[1024], config[1024];
  outcome *expected = shared_outcomes(), *out = shared_outcomes();
  snprintf(alone, sizeof alone, TRAIN("6", "microbatches = 3\n"));
  snprintf(config, sizeof config, "%s%s", l->sections, alone);
  trial before = trial_of_loss(l, alone, expected), after = trial_of_loss(l, config, out);
  before.without_comm = 1;
  trains_on_the_host(run, &before, 1);
  if (!run->failure[0]) trains_until_its_device_is_lost(run, l, config);
  if (!run->failure[0] && run->rank == l->victim) is_refused_its_device(run, l);
  after.expected = expected;
  if (!run->failure[0]) trains_on_the_host(run, &after, RANKS);
}

static void loses_devices_over(const char* transport, const char* sections, small_transformer* transformer) {
  static const int moments[] = {1, 2, 5, 14, 60};
  for (int i = 0; i < 20; ++i) {
    loss l = {.transport = transport, .sections = sections, .transformer = transformer};
    l.victim = i % RANKS;
    l.error = i / 2 % 2 ? GONE : ILLEGAL_ADDRESS;
    l.at = moments[i / 4];
    l.has_begun = (i / 2 + i / 4) % 2;
    l.n_ready = (int32_t*)shared_memory(sizeof(int32_t));
    print_message("  rank %d, error %d at %d of step %d\n", l.victim, l.error, l.at, l.has_begun);
    as_processes(RANKS, goes_on_without_its_device, &l);
    munmap(l.n_ready, sizeof(int32_t));
  }
}
static void loses_devices(const char* sections) {
  loses_devices_over("nccl", sections, NULL);
}

static void in_a_pipeline(void** state) {
  (void)state;
  loses_devices("[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n");
}
static void on_the_data_axis(void** state) {
  (void)state;
  loses_devices(DDP("bucket_bytes = 100\n"));
  loses_devices(ZERO("3", ALL_SHARDED));
}
static void through_host_memory(void** state) {
  (void)state;
  loses_devices_over("host", ZERO("3", ALL_SHARDED), NULL);
}
static void through_memory_that_ranks_share(void** state) {
  (void)state;
  loses_devices_over("cuda_ipc", ZERO("3", ALL_SHARDED), NULL);
}
static void on_axes_that_divide_layers(void** state) {
  small_transformer* m = (small_transformer*)calloc(1, sizeof *m); /* large */
  (void)state;
  m->overflow_at_step = m->fail_at_step = -1;
  loses_devices_over("nccl", "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n", m);
  loses_devices_over("nccl", "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n", m);
  free(m);
}

/* ---- a device that another process holds ---- */

typedef struct held {
  char folder[256];
  volatile int32_t taken;    /* by the process that holds device 0 */
  int32_t devices[RANKS];    /* of the ranks */
  gsel_status status[RANKS]; /* what they got */
  char text[RANKS][512];
} held;

/* A process of somebody else's, which holds device 0 until it is ended. */
static pid_t hold_device(held* h) {
  fflush(NULL);
  const pid_t pid = fork();
  if (pid > 0) {
    await_step(&h->taken, 1);
    return pid;
  }
  alarm(100);
  setenv("GSEL_FAKE_CUDA_EXCLUSIVE", h->folder, 1);
  load_doubles("fake_libnccl.so");
  open_gpu(0);
  reach_step(&h->taken, 1);
  for (;;) pause();
}

static void asks_for_its_device(rank_run* run) {
  held* h = (held*)run->user;
  gsel_comm* comm = NULL;
  gsel_error* err = NULL;
  setenv("GSEL_FAKE_CUDA_EXCLUSIVE", h->folder, 1);
  load_doubles("fake_libnccl.so");
  h->status[run->rank] = join_on(run, "auto", h->devices[run->rank], &comm, &err);
  gsel_error_format(err, h->text[run->rank], sizeof h->text[run->rank]);
  gsel_error_free(err);
  gsel_comm_free(comm);
}

static void trains_without_its_device(rank_run* run) {
  const held* h = (const held*)run->user;
  outcome *expected = shared_outcomes(), *out = shared_outcomes();
  gsel_error* err = NULL;
  session s;
  trial before = plain(TRAIN("6", ""), expected), refused = plain(TRAIN("6", "device = \"cuda:0\"\n"), NULL), after;
  rank_run own = *run;
  before.without_comm = refused.without_comm = 1;
  after = before;
  after.out = out;
  after.expected = expected;
  setenv("GSEL_FAKE_CUDA_EXCLUSIVE", h->folder, 1);
  load_doubles("fake_libnccl.so");
  trains_on_the_host(run, &before, 1);
  own.user = &refused;
  rank_fails(run, open_session(&own, &s, &err), err, GSEL_ERR_NO_DEVICES, "another process has the device for itself",
             -1);
  close_session(&s);
  if (!run->failure[0]) trains_on_the_host(run, &after, 1);
}

static held* exclusive_machine(void) {
  held* h = (held*)shared_memory(sizeof *h);
  assert_true(make_scratch(h->folder, sizeof h->folder, "lost"));
  return h;
}
static void free_machine(held* h) {
  assert_int_equal(remove_scratch(h->folder), 0);
  munmap(h, sizeof *h);
}

/* A rank cannot have its device and says why; the other is told so. */
static void expect_one_without(const held* h, int refused) {
  static const char why[] =
      "its primary context on device 0: CUDA_ERROR_DEVICE_UNAVAILABLE (46), as the fake machine was told; another "
      "process has the device for itself; gsel_comm_options.accelerator = \"cuda:0 | cpu\" takes the host where no "
      "rank "
      "has such a device";
  char told[512];
  for (int r = 0; r < RANKS; ++r) print_message("  rank %d: %s\n", r, h->text[r]);
  if (refused < 0) refused = strncmp(h->text[0], "rank ", 5) == 0;
  snprintf(told, sizeof told, "rank %d: %s", refused, why);
  assert_string_equal(h->text[refused], why);
  assert_string_equal(h->text[1 - refused], told);
  for (int r = 0; r < RANKS; ++r) assert_int_equal(h->status[r], GSEL_ERR_NO_DEVICES);
}

static void a_device_of_another_process_is_named(void** state) {
  held* h = exclusive_machine();
  (void)state;
  const pid_t holder = hold_device(h);
  h->devices[1] = 1;
  as_processes(RANKS, asks_for_its_device, h);
  expect_one_without(h, 0);
  as_processes(1, trains_without_its_device, h);
  kill(holder, SIGKILL);
  waitpid(holder, NULL, 0);
  as_processes(RANKS, asks_for_its_device, h);
  for (int r = 0; r < RANKS; ++r)
    if (h->status[r]) fail_msg("%s", h->text[r]);
  free_machine(h);
}

static void ranks_that_are_told_one_exclusive_device_are_told_so(void** state) {
  held* h = exclusive_machine();
  (void)state;
  as_processes(RANKS, asks_for_its_device, h);
  expect_one_without(h, -1);
  free_machine(h);
}

int main(void) {
  /* The double counts what a process does, and no thread may have run here before ranks are forked. */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(in_a_pipeline),
      cmocka_unit_test(on_the_data_axis),
      cmocka_unit_test(through_host_memory),
      cmocka_unit_test(through_memory_that_ranks_share),
      cmocka_unit_test(on_axes_that_divide_layers),
      cmocka_unit_test(a_device_of_another_process_is_named),
      cmocka_unit_test(ranks_that_are_told_one_exclusive_device_are_told_so),
  };
  return cmocka_run_group_tests_name("train_lost", tests, NULL, NULL);
}
