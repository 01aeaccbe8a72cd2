/* Steps that run as graphs ([train] graph): over several steps, under each setting of [train], parameters, gradients,
 * losses and norms are those of plain steps, bit for bit, and the double counts what was launched. What cannot be
 * recorded is refused with its reason, or runs without graphs and says why. */
#include <sys/wait.h>
#include <unistd.h>

#include "fake/cuda/graph_trial.h"
#include "support/host_training.h"

/* Launches of a step are one, from the second on. */
static void replays(training t, int launches) {
  print_message("  %s", t.config);
  const outcome plain = trained(t, "off");
  assert_int_equal(plain.launches, 0);
  for (int mode = 0; mode < 2; ++mode) {
    const outcome graph = trained(t, mode ? "on" : "auto");
    same(&plain, &graph);
    assert_int_equal(graph.launches, launches);
    assert_int_equal(graph.alive, 0);
    assert_int_equal(graph.allocations, 0);
    assert_non_null(strstr(graph.no_graphs, "\"no_graphs\":null"));
    assert_true(graph.arena[0] == graph.arena[1]);
  }
  no_violations();
}

#define SGD "[train]\noptimizer = \"sgd\"\nmomentum = 0.5\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n"
#define ADAMW "[train]\noptimizer = \"adamw\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n"

static void graphs_give_the_bits_of_plain_steps(void** state) {
  (void)state;
  static const char* const configs[] = {
      SGD,
      ADAMW,
      "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n",
      "[train]\noptimizer = \"adam\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n",
      "[train]\noptimizer = \"lion\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n",
      "[train]\noptimizer = \"adamw_8bit\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n",
      "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 0.125\nbatch = 8\nseed = 3\n",
      ADAMW "microbatches = 2\n",
      ADAMW "microbatches = 4\nclip_norm = 0.5\n",
      SGD "gradient_norm = \"always\"\n",
      SGD "non_finite = \"off\"\n",
      ADAMW "precision = \"bf16\"\nclip_norm = 0.5\n",
      ADAMW "precision = \"fp16\"\n",
      ADAMW "precision = \"fp16\"\nloss_scale_window = 2\nclip_norm = 0.5\n",
      ADAMW "schedule = \"linear\"\nwarmup_steps = 2\ntotal_steps = 7\n",
      "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\n" ADAMW "microbatches = 2\nclip_norm = 0.5\n",
      "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 100\n" ADAMW "microbatches = 2\nclip_norm = 0.5\n",
      "[strategy.data]\nplugin = \"zero\"\nstage = 1\noffload = \"state\"\n" ADAMW "clip_norm = 0.5\n",
      "[strategy.data]\nplugin = \"zero\"\nstage = 3\noffload = \"all\"\npersist_elems = 0\n" ADAMW
      "microbatches = 2\n",
  };
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i)
    replays((training){.config = configs[i], .reads = 1}, STEPS - 1);
}

/* Parameters with rates of their own; some of whose gradients are in the search for numbers alone. */
static void parameters_that_differ_are_stepped_as_they_are(void** state) {
  (void)state;
  static const uint32_t flags[] = {GSEL_PARAM_NO_DECAY, GSEL_PARAM_NO_CLIP, GSEL_PARAM_NO_DECAY | GSEL_PARAM_NO_CLIP};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; ++i) {
    flags_of_v = flags[i];
    replays((training){.config = ADAMW "weight_decay = 0.25\nclip_norm = 0.5\n", .reads = 1}, STEPS - 1);
    replays((training){.config = SGD "weight_decay = 0.25\nclip_norm = 0.5\nnon_finite = \"off\"\n", .reads = 1},
            STEPS - 1);
  }
  flags_of_v = 0;
}

/* Values minus the rate times the gradient, by kernels. */
static int n_own_steps;
static gsel_status own_step(const gsel_optimizer_call* c, void* user) {
  (void)user;
  ++n_own_steps;
  int failed = scale(c->stream, c->gradient, -c->learning_rate, (uint64_t)c->count);
  if (!failed) failed = add(c->stream, c->values, c->gradient, (uint64_t)c->count);
  return failed ? GSEL_ERR_DEVICE : GSEL_OK;
}

/* The graph has forward and backward. */
static void an_optimizer_of_the_embedder_is_called_in_each_step(void** state) {
  (void)state;
  gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
  optimizer.step = own_step;
  n_own_steps = 0;
  replays((training){.config = ADAMW "clip_norm = 0.5\n", .optimizer = &optimizer, .sets_rate = 1}, STEPS - 1);
  assert_int_equal(n_own_steps, 3 * STEPS * N_PARAMS);
}

static void what_happens_between_steps_changes_nothing(void** state) {
  (void)state;
  replays((training){.config = ADAMW, .reads = 1, .evaluates = 1, .sets_rate = 1}, STEPS - 1);
  replays((training){.config = ADAMW "microbatches = 2\n", .evaluates = 1}, STEPS - 1);
  replays((training){.config = SGD, .reads = 1, .pulls = 1}, STEPS - 1);
}

static void callbacks_are_called_in_two_steps(void** state) {
  (void)state;
  const training t = {.config = ADAMW "microbatches = 2\n"};
  const outcome plain = trained(t, "off"), graph = trained(t, "on");
  assert_int_equal(plain.calls, 2 * 7 * STEPS);
  assert_int_equal(graph.calls, 2 * 7 * 2);
}

static void no_order_of_the_device_changes_a_bit(void** state) {
  (void)state;
  static const char* const orders[] = {"random", "others", "newest"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; ++i) {
    setenv("GSEL_FAKE_CUDA_ORDER", orders[i], 1);
    replays((training){.config = ADAMW "microbatches = 2\nclip_norm = 0.5\n", .reads = 1}, STEPS - 1);
  }
  unsetenv("GSEL_FAKE_CUDA_ORDER");
}

/* ---- numbers that are not finite, and batches that end ---- */

static void a_step_that_is_skipped_is_skipped(void** state) {
  (void)state;
  static const char* const configs[] = {ADAMW "non_finite = \"skip\"\n",
                                        ADAMW "non_finite = \"skip\"\nclip_norm = 0.5\n",
                                        ADAMW "precision = \"fp16\"\nmicrobatches = 2\n"};
  infinite_sample = 8 * 4 + 5; /* of the fifth step */
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) {
    const outcome plain = trained((training){.config = configs[i]}, "off");
    for (int k = 0; k < STEPS; ++k) assert_int_equal(plain.steps[k].skipped, k == 4);
    const outcome graph = trained((training){.config = configs[i], .reads = 1}, "on");
    assert_int_equal(graph.steps[4].skipped, 1);
    replays((training){.config = configs[i], .reads = 1}, STEPS - 1);
  }
  infinite_sample = -1;
}

static void an_error_of_a_step_is_that_of_a_plain_one(void** state) {
  (void)state;
  char texts[2][512];
  infinite_sample = 8 * 4 + 5;
  for (int on = 0; on < 2; ++on) {
    static outcome out;
    gsel_error* err = NULL;
    const training t = {.config = ADAMW "non_finite = \"error\"\n", .graph = on ? "on" : "off"};
    assert_int_equal(train(&t, &out, &err), GSEL_ERR_CALLBACK);
    snprintf(texts[on], sizeof texts[on], "%s", gsel_error_message(err).data);
    gsel_error_free(err);
  }
  infinite_sample = -1;
  assert_string_equal(texts[0], texts[1]);
  no_violations();
}

static void set_weights(double of_sample) {
  double weights[MOST_BATCH + 1];
  for (int i = 0; i <= MOST_BATCH; ++i) weights[i] = i * of_sample;
  copy(&card, one, weights, sizeof weights);
  finish(&card);
}

/* Where the host adds them, in the first step with graphs, and where the device does. */
static void weights_that_are_not_positive_are_refused_alike(void** state) {
  (void)state;
  char texts[2][512];
  set_weights(-1);
  for (int on = 0; on < 2; ++on) {
    static outcome out;
    gsel_error* err = NULL;
    const training t = {.config = ADAMW "microbatches = 2\n", .graph = on ? "on" : "off"};
    assert_int_equal(train(&t, &out, &err), GSEL_ERR_MODEL);
    snprintf(texts[on], sizeof texts[on], "%s", gsel_error_message(err).data);
    gsel_error_free(err);
  }
  set_weights(1);
  assert_string_equal(texts[0], texts[1]);
  assert_non_null(
      strstr(texts[0], "of step 0 sum to -8; that of layer \"loss\" on rank 0, micro-batch 0, is negative"));
  no_violations();
}

/* Such a step is plain, and the graph is launched again in the next one. */
static void a_batch_that_ends_early_is_a_plain_step(void** state) {
  (void)state;
  last_sample = 8 * 4 + 4; /* the second micro-batch of the fifth step */
  replays((training){.config = ADAMW "microbatches = 2\n", .reads = 1}, STEPS - 2);
  last_sample = -1;
}

/* ---- what cannot be recorded ---- */

static gsel_status waits(const gsel_call* c, void* user) {
  (void)user;
  enter();
  const int failed = cuda.synchronize(c->stream);
  leave();
  return failed ? GSEL_ERR_DEVICE : GSEL_OK;
}
static gsel_status waits_and_goes_on(const gsel_call* c, void* user) {
  waits(c, user);
  return GSEL_OK;
}
static gsel_status allocates(const gsel_call* c, void* user) {
  uintptr_t at = 0;
  (void)c, (void)user;
  enter();
  cuda.alloc(&at, 64);
  leave();
  return GSEL_OK;
}
/* Its own stream waits for that of the call, and nobody waits for it. */
static gsel_status forks(const gsel_call* c, void* user) {
  static void* event;
  (void)user;
  enter();
  if (!event) CUDA("cuEventCreate", void**, unsigned)(&event, 2);
  CUDA("cuEventRecord", void*, void*)(event, c->stream);
  CUDA("cuStreamWaitEvent", void*, void*, unsigned)(card.stream, event, 0);
  leave();
  return GSEL_OK;
}
/* And now somebody does. */
static gsel_status forks_and_joins(const gsel_call* c, void* user) {
  static void* event;
  forks(c, user);
  enter();
  if (!event) CUDA("cuEventCreate", void**, unsigned)(&event, 2);
  CUDA("cuEventRecord", void*, void*)(event, card.stream);
  CUDA("cuStreamWaitEvent", void*, void*, unsigned)(c->stream, event, 0);
  leave();
  return GSEL_OK;
}

static void falls_back(gsel_layer_fn fault, const char* why) {
  static outcome plain, graph;
  gsel_error* err = NULL;
  training t = {.config = ADAMW "microbatches = 2\n", .graph = "off", .reads = 1};
  of_fault = fault;
  fault_from = 0;
  if (train(&t, &plain, &err)) fail_msg("%s", gsel_error_message(err).data);
  t.graph = "auto";
  if (train(&t, &graph, &err)) fail_msg("%s", gsel_error_message(err).data);
  same(&plain, &graph);
  print_message("  %s\n", graph.no_graphs);
  assert_int_equal(graph.launches, 0);
  assert_int_equal(graph.alive, 0);
  assert_non_null(strstr(graph.no_graphs, why));
  t.graph = "on";
  assert_int_equal(train(&t, &graph, &err), GSEL_ERR_UNSUPPORTED);
  print_message("  %s\n", gsel_error_message(err).data);
  assert_non_null(strstr(gsel_error_message(err).data, why));
  gsel_error_free(err);
  assert_int_equal(graph.alive, 0);
  of_fault = NULL;
  no_violations();
}

static void a_callback_that_needs_the_host_is_named(void** state) {
  (void)state;
  falls_back(waits, " failed in forward on rank 0, step 1, micro-batch 0");
  falls_back(waits_and_goes_on, "a call that a capture forbids has invalidated it");
  falls_back(allocates, "a call that a capture forbids has invalidated it");
}

static void a_stream_that_is_not_joined_is_an_error(void** state) {
  (void)state;
  falls_back(forks, "the end of a capture on device 0: ");
}

static void streams_of_callbacks_are_part_of_a_graph(void** state) {
  (void)state;
  training t = {.config = SGD, .reads = 1};
  of_fault = forks_and_joins;
  fault_from = 0;
  replays(t, STEPS - 1);
  of_fault = NULL;
}

/* ---- where there are no graphs ---- */

static void is_refused(const char* config, const char* device, const char* why) {
  static outcome out;
  gsel_error* err = NULL;
  training t = {.config = config, .graph = "on", .device = device};
  assert_int_equal(train(&t, &out, &err), GSEL_ERR_UNSUPPORTED);
  print_message("  %s\n", gsel_error_message(err).data);
  assert_non_null(strstr(gsel_error_message(err).data, "train.graph = \"on\""));
  assert_non_null(strstr(gsel_error_message(err).data, why));
  gsel_error_free(err);
  if (!strcmp(device, "cpu")) return; /* the layers have no kernels there */
  outcome plain = trained(t, "off");
  outcome graph = trained(t, "auto");
  same(&plain, &graph);
  assert_int_equal(graph.launches, 0);
  assert_non_null(strstr(graph.no_graphs, why));
}

static void a_configuration_without_graphs_is_refused(void** state) {
  (void)state;
  is_refused(ADAMW, "cpu", "graph.toml:7: train.graph = \"on\" is not possible: the trainer's device is the host");
  is_refused(ADAMW "lending = \"moved\"\n", first_device(), "gives each call other addresses");
  no_violations();
}

/* The driver is looked for once in a process, so this is one of its own. */
static void a_driver_without_graphs_is_named(void** state) {
  int status = 0;
  (void)state;
  if (is_on_card()) skip(); /* this takes the driver's graphs away, which only the double lets be done */
  if (is_of_amd()) skip();  /* every HIP that gsel takes has graphs */
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    setenv("GSEL_FAKE_CUDA_LACKS", "cuGraphLaunch", 1);
    is_refused(ADAMW, "cuda:0", "the CUDA driver has no cuGraphLaunch");
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* ---- memory ---- */

/* Beside the forecast: keys of three layers, 64 bytes of the optimizer for each of two parameters and their bucket, two
 * numbers, and the scratch of the plugin for sums. */
static void a_graph_has_little_beside_the_forecast(void** state) {
  enum { KEYS = 64, FACTORS = 3 * 64, NUMBERS = 16, SCRATCH = 16 };
  typedef uint64_t (*bytes_fn)(int, int);
  const training t = {.config = ADAMW "clip_norm = 0.5\n", .graph = "on"};
  gsel_model* model = NULL;
  gsel_error* err = NULL;
  gsel_status status = GSEL_OK;
  uint64_t forecast = 0;
  (void)state;
  if (is_on_card()) skip(); /* a driver does not count by program */
  const bytes_fn bytes = (bytes_fn)dlsym(cuda.library, "fake_cuda_bytes");
  open_kernels(); /* whose context has scratch of its own */
  const uint64_t before = bytes(0, 0);
  gsel_trainer* trainer = open_trainer(&t, &model, &status, &err);
  for (int i = 0; i < STEPS && !status; ++i) status = gsel_trainer_step(trainer, NULL, &err);
  if (status) fail_msg("%s", gsel_error_message(err).data);
  for (int32_t i = 0; i < gsel_trainer_memory_count(trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    gsel_trainer_memory(trainer, i, &part, NULL);
    if (!part.offloaded) forecast += part.forecast_bytes;
  }
  assert_int_equal(bytes(0, 0) - before, forecast + KEYS + FACTORS + NUMBERS + SCRATCH);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  assert_int_equal(bytes(0, 0), before);
}

/* ---- a device that is lost ---- */

enum { ILLEGAL_ADDRESS = 700, GONE = 999 };
static int lost_with, lost_at; /* the kernel that fails, or the call that finds the device gone, from 1 */
static int64_t lost_in;        /* this step and later */

static void arm_at(int64_t step) {
  const char* how = lost_with == GONE ? "fake_cuda_lose" : "fake_cuda_fail";
  if (step == lost_in) ((void (*)(int, int))dlsym(cuda.library, how))(lost_at, lost_with);
}

/* In a process of its own. False: it says why. */
static int trains_on_the_host_without_its_device(void) {
  char failure[1024], text[1024] = "";
  const uint64_t expected = host_training(failure, sizeof failure);
  gsel_model* model = NULL;
  gsel_error* err = NULL;
  gsel_status status = GSEL_OK;
  const training t = {.config = ADAMW "microbatches = 2\nclip_norm = 0.5\n", .graph = "on"};
  gsel_trainer* trainer = open_trainer(&t, &model, &status, &err);
  for (int64_t i = 0; i < STEPS && !status; ++i) {
    arm_at(i);
    status = gsel_trainer_step(trainer, NULL, &err);
  }
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  const char* of_nvidia =
      lost_with == GONE ? "on device 0: CUDA_ERROR_UNKNOWN (999)" : "on device 0: CUDA_ERROR_ILLEGAL_ADDRESS (700)";
  const char* of_amd =
      lost_with == GONE ? "on device 0: hipErrorUnknown (999)" : "on device 0: hipErrorIllegalAddress (700)";
  const char* what = is_of_amd() ? of_amd : of_nvidia;
  /* A callback may be the first that it is told. */
  const int is_named = (status == GSEL_ERR_DEVICE || status == GSEL_ERR_CALLBACK) && strstr(text, what);
  if (!is_named) print_error("expected an error with \"%s\", got %s: %s\n", what, gsel_status_name(status), text);
  err = NULL;
  const gsel_status again = gsel_trainer_step(trainer, NULL, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  const int is_over = again == GSEL_ERR_STATE && strstr(text, "an earlier step failed");
  if (!is_over) print_error("a step after it: %s: %s\n", gsel_status_name(again), text);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  const uint64_t got = host_training(failure, sizeof failure);
  if (!got || got != expected) print_error("the host trains otherwise than before: %s\n", failure);
  return is_named && is_over && got && got == expected;
}

static void lose_device(int64_t step, int error, int at) {
  int status = 0;
  print_message("  error %d at %d of step %d\n", error, at, (int)step);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    lost_in = step;
    lost_with = error;
    lost_at = at;
    _exit(!trains_on_the_host_without_its_device());
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
}

/* In a plain step, while one is recorded, in the launch of what was recorded, and in later ones. */
static void a_device_that_is_lost_is_named(void** state) {
  static const int moments[] = {1, 2, 5, 14, 30};
  (void)state;
  if (is_on_card()) skip(); /* only the double can be told to fail */
  for (int64_t step = 0; step < 4; ++step)
    for (int i = 0; i < 10; ++i) lose_device(step, i % 2 ? GONE : ILLEGAL_ADDRESS, moments[i / 2]);
}

int main(void) {
  infinite_sample = last_sample = -1;
  load_doubles("fake_libnccl.so");
  card = open_gpu(0);
  one = (double*)alloc(&card, (MOST_BATCH + 1) * sizeof(double));
  set_weights(1);
  key_log = (uint64_t*)alloc(&card, 8);
  finish(&card);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_driver_without_graphs_is_named), /* before the driver is looked for */
      cmocka_unit_test(a_device_that_is_lost_is_named),   /* in processes, so before threads */
      cmocka_unit_test(graphs_give_the_bits_of_plain_steps),
      cmocka_unit_test(parameters_that_differ_are_stepped_as_they_are),
      cmocka_unit_test(an_optimizer_of_the_embedder_is_called_in_each_step),
      cmocka_unit_test(what_happens_between_steps_changes_nothing),
      cmocka_unit_test(callbacks_are_called_in_two_steps),
      cmocka_unit_test(no_order_of_the_device_changes_a_bit),
      cmocka_unit_test(a_step_that_is_skipped_is_skipped),
      cmocka_unit_test(an_error_of_a_step_is_that_of_a_plain_one),
      cmocka_unit_test(weights_that_are_not_positive_are_refused_alike),
      cmocka_unit_test(a_batch_that_ends_early_is_a_plain_step),
      cmocka_unit_test(a_callback_that_needs_the_host_is_named),
      cmocka_unit_test(a_stream_that_is_not_joined_is_an_error),
      cmocka_unit_test(streams_of_callbacks_are_part_of_a_graph),
      cmocka_unit_test(a_configuration_without_graphs_is_refused),
      cmocka_unit_test(a_graph_has_little_beside_the_forecast),
  };
  return cmocka_run_group_tests_name("train_graph", tests, NULL, NULL);
}
