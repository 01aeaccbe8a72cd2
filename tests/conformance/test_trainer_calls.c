/* The trainer's calls: in which order they may come, models that are pulled alone, inference, and configurations that
 * are refused with their place. */
#include <stdatomic.h>

#include "support/trainer_trial.h"

static void calls_out_of_order_are_refused(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  trial t = plain(TRAIN("2", ""), NULL);
  run->user = &t;
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_work work = GSEL_WORK_INIT;
  const gsel_str none = {NULL, 0};
  float small[1];
  check_ok(open_session(run, &s, &err), err);
  work.struct_size = 0; /* refused before any work is handed out */
  check_fails(gsel_trainer_next_work(s.trainer, &work, &err), err, GSEL_ERR_VERSION, "gsel_work.struct_size is 0");
  work.struct_size = sizeof work;
  check_fails(gsel_trainer_report(s.trainer, &report, &err), err, GSEL_ERR_STATE, "no step is finished");
  check_fails(gsel_trainer_complete(s.trainer, 1, GSEL_OK, none, &err), err, GSEL_ERR_STATE, "none is handed out");
  check_ok(gsel_trainer_next_work(s.trainer, &work, &err), err);
  assert_int_equal(work.kind, GSEL_INPUT);
  check_fails(gsel_trainer_next_work(s.trainer, &work, &err), err, GSEL_ERR_STATE, "is handed out and not complete");
  check_fails(gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "under way in pull mode");
  check_fails(gsel_trainer_infer(s.trainer, V_LOGITS, 1, exact_data, NULL, small, sizeof small, &err), err,
              GSEL_ERR_STATE, "under way");
  check_fails(gsel_trainer_complete(s.trainer, work.ticket + 1, GSEL_OK, none, &err), err, GSEL_ERR_STATE,
              "is handed out");
  check_fails(gsel_trainer_complete(s.trainer, work.ticket, GSEL_ERR_IO, gsel_str_from("disk full"), &err), err,
              GSEL_ERR_CALLBACK, "input \"tokens\" failed in input on rank 0, step 0, micro-batch 0: disk full");
  close_session(&s);
  ranks_verdict(run, 1);
}

/* A model without callbacks, as Go and Rust describe it: pulled it runs, pushed it is refused by name. */
static void layers_without_callbacks_are_pulled_and_never_pushed(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  int word = 7;
  const int64_t one = 1;
  const int32_t in = 0, outs[] = {1, 2}, param = 0;
  check_ok(rank_join(run, &comm, &err), err);
  check_ok(gsel_model_create(&model, &err), err);
  gsel_param_options w = GSEL_PARAM_OPTIONS_INIT;
  w.name = gsel_str_from("w");
  w.dims = &one;
  w.n_dims = 1;
  check_ok(gsel_model_add_param(model, &w, NULL, &err), err);
  for (int v = 0; v < 3; ++v) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = gsel_str_from(v == 0 ? "x" : v == 1 ? "loss" : "weight");
    value.dtype = v ? GSEL_F64 : GSEL_F32;
    value.flags = v ? GSEL_VALUE_SCALAR : GSEL_VALUE_INPUT;
    check_ok(gsel_model_add_value(model, &value, NULL, &err), err);
  }
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("product");
  layer.inputs = &in;
  layer.outputs = outs;
  layer.params = &param;
  layer.n_inputs = layer.n_params = 1;
  layer.n_outputs = 2;
  layer.flags = GSEL_LAYER_LOSS;
  layer.user_data = &word;
  check_ok(gsel_model_add_layer(model, &layer, NULL, &err), err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.data = exact_data;
  check_ok(gsel_trainer_create(comm, model, &options, &trainer, &err), err);
  check_fails(gsel_trainer_step(trainer, NULL, &err), err, GSEL_ERR_STATE,
              "layer \"product\" has no callbacks; pull the step");
  double out = 0;
  check_fails(gsel_trainer_infer(trainer, 1, 1, exact_data, NULL, &out, sizeof out, &err), err, GSEL_ERR_STATE,
              "layer \"product\" has no callbacks");
  int kinds[4] = {0};
  for (int i = 0; i < 4; ++i) {
    gsel_work work = GSEL_WORK_INIT;
    const gsel_str none = {NULL, 0};
    check_ok(gsel_trainer_next_work(trainer, &work, &err), err);
    kinds[i] = work.kind;
    if (work.call) assert_ptr_equal(work.call->user_data, &word);
    if (work.input) *(float*)work.input->dst.data = 1;
    if (work.kind == GSEL_FORWARD) *(double*)work.call->outputs[0].data = *(double*)work.call->outputs[1].data = 1;
    if (work.kind == GSEL_BACKWARD) *(float*)work.call->d_params[0].data = 1;
    if (work.kind != GSEL_WORK_DONE) check_ok(gsel_trainer_complete(trainer, work.ticket, GSEL_OK, none, &err), err);
  }
  const int expected[4] = {GSEL_INPUT, GSEL_FORWARD, GSEL_BACKWARD, GSEL_WORK_DONE};
  assert_memory_equal(kinds, expected, sizeof kinds);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_free(comm);
  ranks_verdict(run, 1);
}

/* ---- a folder that cannot be written to ---- */

static gsel_status step_or_pull(session* s, int pull, gsel_error** err) {
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  return pull ? pull_step(s->trainer, &s->m, &report, err) : gsel_trainer_step(s->trainer, NULL, err);
}

/* Rank 0's steps are taken and say that their timeline is missing; the other ranks' are as always. */
static void train_without_timeline(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < t->steps; ++i) {
    const gsel_status status = step_or_pull(&s, t->pull, &err);
    if (run->rank == 1)
      rank_fails(run, status, err, GSEL_ERR_IO, "/nonexistent/folder", -1);
    else
      rank_ok(run, status, err);
    rank_ok(run, gsel_trainer_report(s.trainer, &report, &err), err);
    rank_check(run, report.step == i && report.weight > 0);
    rank_ok(run, gsel_trainer_evaluate(s.trainer, 0, NULL, NULL, NULL, &err), err);
  }
  read_params(run, s.trainer, t->out[run->rank].params);
  close_session(&s);
  rank_check(run, memcmp(t->out[run->rank].params, t->expected->params, sizeof t->expected->params) == 0);
}

static void a_timeline_that_cannot_be_written_breaks_nothing(void** state) {
  (void)state;
  const trial like = plain(NULL, NULL);
  outcome *expected = exact_reference(&like, TRAIN("6", "")), *out = shared_outcomes();
  trial t = plain(TRAIN("6", "redundancy = 1\n"), out); /* ranks copy their states to each other behind each step */
  t.expected = expected;
  t.other_config_on_1 = TRAIN("6", "redundancy = 1\ntimeline = \"/nonexistent/folder\"\n");
  for (t.pull = 0; t.pull < 2; ++t.pull) as_threads(3, train_without_timeline, &t);
  free_outcomes(expected);
  free_outcomes(out);
}

/* ---- signals ---- */

typedef struct signalled {
  trial t;
  pthread_barrier_t barrier;
} signalled;

static atomic_int signals_handled;
static void count_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals_handled, 1);
}

static sigset_t user_signal(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return set;
}

/* The library's threads begin while this one would take the signal; it is sent once all of the program's block it. */
static void train_under_a_signal(rank_run* run) {
  signalled* shared = (signalled*)run->user;
  const sigset_t set = user_signal();
  session s;
  gsel_error* err = NULL;
  sigset_t pending;
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  const gsel_status opened = open_session(run, &s, &err);
  const gsel_status stepped = opened ? opened : gsel_trainer_step(s.trainer, NULL, &err);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_barrier_wait(&shared->barrier);
  if (run->rank == 0) kill(getpid(), SIGUSR1);
  pthread_barrier_wait(&shared->barrier);
  rank_ok(run, stepped, err);
  for (int i = 0; i < 20; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  sigpending(&pending);
  rank_check(run, sigismember(&pending, SIGUSR1) && atomic_load(&signals_handled) == 0);
  close_session(&s);
}

static void no_signal_handler_runs_on_a_thread_of_the_library(void** state) {
  (void)state;
  const sigset_t set = user_signal();
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = count_signal;
  sigaction(SIGUSR1, &action, &before);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signalled shared;
  shared.t = plain(DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n") TRAIN("6", ""), NULL);
  pthread_barrier_init(&shared.barrier, NULL, 2);
  as_threads(2, train_under_a_signal, &shared);
  const struct timespec none = {0, 0};
  sigtimedwait(&set, NULL, &none);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  sigaction(SIGUSR1, &before, NULL);
  pthread_barrier_destroy(&shared.barrier);
}

static void inference_gives_the_forward_values_of_training(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  outcome* out = shared_outcomes();
  trial t = plain(SGD("0.0", "4", ""), out);
  t.steps = 1;
  run->user = &t;
  session s;
  gsel_error* err = NULL;
  float logits[4 * TOKENS * VOCAB], table[VOCAB * WIDTH];
  double loss = 0;
  check_ok(open_session(run, &s, &err), err);
  check_ok(gsel_trainer_infer(s.trainer, V_LOGITS, 4, exact_data, NULL, logits, sizeof logits, &err), err);
  check_ok(gsel_trainer_infer(s.trainer, V_LOSS, 4, exact_data, NULL, &loss, sizeof loss, &err), err);
  train_in(run, &s);
  assert_true(loss > 0 && loss == out->loss[0]);
  check_fails(gsel_trainer_infer(s.trainer, 99, 1, exact_data, NULL, logits, 4, &err), err, GSEL_ERR_ARG,
              "value 99 was asked for");
  check_fails(gsel_trainer_infer(s.trainer, V_LOGITS, 0, exact_data, NULL, logits, 4, &err), err, GSEL_ERR_ARG,
              "0 samples");
  check_fails(gsel_trainer_infer(s.trainer, V_LOGITS, 1, exact_data, NULL, logits, 4, &err), err, GSEL_ERR_ARG,
              "dst has 4 bytes");
  check_fails(gsel_trainer_read_param(s.trainer, P_TABLE, table, 3, &err), err, GSEL_ERR_ARG, "dst has 3 bytes");
  check_fails(gsel_trainer_read_param(s.trainer, -1, table, 3, &err), err, GSEL_ERR_ARG, "parameter -1");
  close_session(&s);
  free_outcomes(out);
  ranks_verdict(run, 1);
}

static void a_strategy_that_is_not_there_or_does_not_fit_is_refused_with_its_place(void** state) {
  (void)state;
  static const struct {
    const char* config;
    gsel_status code;
    const char* message;
  } cases[] = {
      {"[strategy.data]\nplugin = \"nonesuch\"\n", GSEL_ERR_NOT_FOUND, "trial.toml:2: strategy \"nonesuch\""},
      {"[strategy.data]\nplugin = \"ddp\"\nbuckets = 3\n", GSEL_ERR_CONFIG,
       "trial.toml:3: unknown key \"strategy.data.buckets\""},
      {"[strategy.data]\nplugin = \"ddp\"\noverlap = 3\n", GSEL_ERR_CONFIG,
       "trial.toml:3: strategy.data.overlap = 3 is not accepted; expected true or false"},
      {"[strategy.data]\nplugin = \"ddp\"\noverlap = \"false\"\n", GSEL_ERR_CONFIG,
       "trial.toml:3: strategy.data.overlap = \"false\" is not accepted; expected true or false"},
      {"[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 0\n", GSEL_ERR_CONFIG, "an integer from 1 to"},
      {"[strategy.data]\nplugin = \"ddp\"\ncompress = \"zip\"\n", GSEL_ERR_CONFIG,
       "ddp: compress = \"zip\" is not accepted; expected \"none\", \"f16\", \"bf16\" or \"low_rank\""},
      {ZERO("4", ""), GSEL_ERR_CONFIG,
       "trial.toml:3: strategy.data.stage = 4 is not accepted; expected an integer from 1 to 3"},
      {ZERO("3", "keep = \"always\"\n"), GSEL_ERR_CONFIG, "zero: keep = \"always\" is not accepted; expected \"none\""},
      {ZERO("2", "offload = \"all\"\n"), GSEL_ERR_CONFIG, "zero: offload = \"all\" needs stage = 3"},
      {DP("stage = 2\n"), GSEL_ERR_CONFIG, "unknown key \"strategy.data.stage\"; plugin \"dp\" has bucket_bytes"},
      {"[train]\nrecompute = \"fc1, fc3\"\n", GSEL_ERR_CONFIG,
       "trial.toml:2: train.recompute = \"fc1, fc3\": there is no layer \"fc3\"; layers that may be recomputed: embed"},
      {"[train]\nrecompute = \"add\"\n", GSEL_ERR_CONFIG, "layer \"add\" was not described as recomputable"},
      {"[train]\nrecompute = \"loss\"\n", GSEL_ERR_CONFIG, "layer \"loss\" is the loss"},
      {"[strategy.tensor]\nplugin = \"ddp\"\n", GSEL_ERR_CONFIG,
       "trial.toml:2: plugin \"ddp\" does not serve the tensor axis"},
      {"[mesh]\ndata = 2\n", GSEL_ERR_CONFIG, "mesh.data"},
      {"[train]\nbatch = 1000000\nmicrobatch = 1\n", GSEL_ERR_CONFIG,
       "trial.toml:3: train.batch = 1000000 in micro-batches"},
      {"[train]\nbatch = 9223372036854775807\nmicrobatch = 9223372036854775806\n", GSEL_ERR_NOMEM,
       "more than memory can address"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    rank_run* run = ranks_prepare(1, NULL);
    trial t = plain(cases[i].config, NULL);
    run->user = &t;
    session s;
    gsel_error* err = NULL;
    check_fails(open_session(run, &s, &err), err, cases[i].code, cases[i].message);
    close_session(&s);
    ranks_verdict(run, 1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_out_of_order_are_refused),
      cmocka_unit_test(layers_without_callbacks_are_pulled_and_never_pushed),
      cmocka_unit_test(a_timeline_that_cannot_be_written_breaks_nothing),
      cmocka_unit_test(no_signal_handler_runs_on_a_thread_of_the_library),
      cmocka_unit_test(inference_gives_the_forward_values_of_training),
      cmocka_unit_test(a_strategy_that_is_not_there_or_does_not_fit_is_refused_with_its_place),
  };
  return cmocka_run_group_tests_name("trainer_calls", tests, NULL, NULL);
}
