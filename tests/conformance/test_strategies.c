/* What every strategy owes: the single rank's result. Exact equality with integers and sign-SGD, the scale oracle with
 * one plain-SGD step in powers of two, bytes against the closed form, and a clear end when a rank fails. Strategies and
 * options are rows of a table; a third party's plugin is tested by adding one. */
#include <sched.h>

#include "support/exact_model.h"
#include "support/plugin_folder.h"
#include "support/ranks.h"

enum { STEPS = 4 };

typedef struct outcome {
  float params[EXACT_ELEMS];
  double loss[STEPS];
  double weight[STEPS];
  double largest;
  uint64_t reduce_bytes;
} outcome;

typedef struct trial {
  const char* config;
  int pull;
  int steps;
  int count_all;
  int wide_on_rank; /* this rank describes another model; -1 none */
  const char* other_config_on_1;
  int fail_at_step; /* -1 never */
  int fail_on_rank;
  void (*at_failure)(void);
  outcome* expected; /* NULL: record into `out` */
  outcome* out;      /* shared memory, [world_size] */
} trial;

static gsel_status call_layer(const gsel_work* work, exact_model* m);

/* One step by pulling work: what Go and Rust do. */
static gsel_status pull_step(gsel_trainer* trainer, exact_model* m, gsel_step_report* report, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(trainer, &work, err);
    if (status) return status;
    if (work.kind == GSEL_WORK_DONE) return gsel_trainer_report(trainer, report, err);
    const gsel_status result = work.input ? exact_data(work.input, NULL) : call_layer(&work, m);
    const gsel_str none = {NULL, 0};
    status =
        gsel_trainer_complete(trainer, work.ticket, result, work.call ? gsel_str_from(work.call->message) : none, err);
    if (status) return status;
  }
}

/* The pulling side's own table of kernels, by layer id. */
static gsel_status call_layer(const gsel_work* work, exact_model* m) {
  static const gsel_layer_fn kernels[7][6] = {
      {0, 0, embed_forward, 0, embed_backward_weight, 0},
      {0, 0, linear_forward, 0, 0, linear_backward},
      {0, 0, clip_forward, clip_backward_input, 0, 0},
      {0, 0, linear_forward, linear_backward_input, linear_backward_weight, 0},
      {0, 0, clip_forward, clip_backward_input, 0, 0},
      {0, 0, head_forward, 0, 0, head_backward},
      {0, 0, loss_forward, loss_backward_input, 0, 0},
  };
  return kernels[work->call->layer][work->kind](work->call, m);
}

static void read_params(rank_run* run, gsel_trainer* trainer, float* out) {
  gsel_error* err = NULL;
  for (int p = 0; p < N_PARAMS; out += kExactElems[p++])
    rank_ok(run, gsel_trainer_read_param(trainer, p, out, sizeof(float) * (size_t)kExactElems[p], &err), err);
}

/* Everything a rank owns in a trial; released in reverse. */
typedef struct session {
  exact_model m;
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} session;

static gsel_status open_session(rank_run* run, session* s, gsel_error** err) {
  const trial* t = (const trial*)run->user;
  const char* config = run->rank == 1 && t->other_config_on_1 ? t->other_config_on_1 : t->config;
  memset(s, 0, sizeof *s);
  s->m.count_all = t->count_all;
  s->m.rank = run->rank;
  s->m.wide_b1 = t->wide_on_rank == run->rank;
  s->m.fail_at_step = t->fail_at_step;
  s->m.fail_on_rank = t->fail_on_rank;
  s->m.at_failure = t->at_failure;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(config), gsel_str_from("trial.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = exact_describe(s->model, &s->m, err);
  options.config = s->config;
  options.data = exact_data;
  if (!status) status = gsel_trainer_create(s->model, s->comm, &options, &s->trainer, err);
  return status;
}

static void close_session(session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_destroy(s->comm);
}

static void train_in(rank_run* run, session* s) {
  const trial* t = (const trial*)run->user;
  outcome* out = &t->out[run->rank];
  gsel_error* err = NULL;
  for (int i = 0; i < t->steps; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    if (t->pull)
      rank_ok(run, pull_step(s->trainer, &s->m, &report, &err), err);
    else
      rank_ok(run, gsel_trainer_step(s->trainer, &report, &err), err);
    out->loss[i] = report.loss_sum;
    out->weight[i] = report.weight;
    rank_check(run, report.step == i);
  }
  out->largest = s->m.largest;
  out->reduce_bytes = gsel_trainer_counts(s->trainer, GSEL_INSTR_REDUCE, GSEL_AXIS_DATA).bytes_sent;
  read_params(run, s->trainer, out->params);
  if (!t->expected) return;
  rank_check(run, memcmp(out->params, t->expected->params, sizeof out->params) == 0);
  rank_check(run, memcmp(out->loss, t->expected->loss, sizeof out->loss) == 0);
  rank_check(run, memcmp(out->weight, t->expected->weight, sizeof out->weight) == 0);
}

static void train(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  train_in(run, &s);
  close_session(&s);
}

static outcome* shared_outcomes(void) {
  void* memory = mmap(NULL, sizeof(outcome) * RANKS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(memory != MAP_FAILED);
  return (outcome*)memory;
}
static void free_outcomes(outcome* o) {
  munmap(o, sizeof(outcome) * RANKS_MAX);
}

#define TRAIN(batch, more) \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = " batch "\nseed = 5\n" more

static trial plain(const char* config, outcome* out) {
  return (trial){.config = config, .steps = STEPS, .wide_on_rank = -1, .fail_at_step = -1, .out = out};
}

/* The single rank without any strategy. */
static outcome* reference(const char* train_section) {
  outcome* out = shared_outcomes();
  trial t = plain(train_section, out);
  as_threads(1, train, &t);
  /* Else f32 would round and equality prove nothing. */
  assert_true(out->largest < 16777216.0);
  for (int i = 0; i < EXACT_ELEMS; ++i) assert_true(out->params[i] == floorf(out->params[i]));
  return out;
}

struct row {
  const char *name, *strategy;
};
static const struct row kStrategies[] = {
    {"ddp", "[strategy.data]\nplugin = \"ddp\"\n"},
    {"ddp, a bucket per parameter", "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n"},
    {"ddp, without overlap", "[strategy.data]\nplugin = \"ddp\"\noverlap = false\nfirst_bucket_bytes = 100\n"},
    {"by default", ""},
    {"flat, the example", "[strategy.data]\nplugin = \"flat\"\n"},
};
/* Batches that divide by no number of ranks, leave a rank without samples, and are cut unevenly. */
static const char* const kTrain[] = {TRAIN("6", ""), TRAIN("7", "microbatch = 2\n"), TRAIN("2", ""),
                                     TRAIN("7", "clip_norm = 1e9\n")};

static void exact(int processes, int pull) {
  for (size_t k = 0; k < sizeof kTrain / sizeof *kTrain; ++k) {
    outcome *expected = reference(kTrain[k]), *out = shared_outcomes();
    for (size_t s = 0; s < sizeof kStrategies / sizeof *kStrategies; ++s)
      for (int n = 1; n <= 3; ++n) {
        char config[512];
        snprintf(config, sizeof config, "%s%s", kStrategies[s].strategy, kTrain[k]);
        trial t = plain(config, out);
        t.expected = expected;
        t.pull = pull;
        print_message("  %s on %d ranks, batch case %zu\n", kStrategies[s].name, n, k);
        (processes ? as_processes : as_threads)(n, train, &t);
      }
    free_outcomes(expected);
    free_outcomes(out);
  }
}

static void every_strategy_on_threads_equals_one_rank_bit_for_bit(void** state) {
  (void)state, exact(0, 0);
}
static void every_strategy_on_processes_equals_one_rank_bit_for_bit(void** state) {
  (void)state, exact(1, 0);
}
static void pulling_equals_pushing_bit_for_bit(void** state) {
  (void)state, exact(0, 1);
}

/* sign-SGD is blind to a wrong factor; one SGD step in powers of two is not. The expected step comes from the gradient
 * of the summed loss, taken on one rank with learning rate and weight 1. */
static void the_step_is_scaled_by_the_global_weight_exactly(void** state) {
  (void)state;
  /* 8 samples of 3 tokens, every token counted: the weight is 24; lr 24 * 2^-9 makes the step gradient / 512. */
  static const char sgd[] =
      "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.046875\nweight_decay = 0.0\nbatch = 8\nseed = 5\n";
  static const char still[] =
      "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.0\nweight_decay = 0.0\nbatch = 8\nseed = 5\n";
  static const char sums[] =
      "[train]\noptimizer = \"sgd\"\nlearning_rate = 24.0\nweight_decay = 0.0\nbatch = 8\nseed = 5\n";
  outcome *initial = shared_outcomes(), *summed = shared_outcomes(), *out = shared_outcomes();
  trial t = plain(still, initial);
  t.steps = 1;
  t.count_all = 1;
  as_threads(1, train, &t);
  t.config = sums;
  t.out = summed;
  as_threads(1, train, &t);
  assert_true(initial->weight[0] == 24.0);
  outcome expected = *summed;
  int moved = 0;
  for (int i = 0; i < EXACT_ELEMS; ++i) {
    const float gradient = initial->params[i] - summed->params[i];
    expected.params[i] = initial->params[i] - gradient / 512;
    moved += gradient != 0;
  }
  assert_true(moved > EXACT_ELEMS / 2);
  t.config = sgd;
  t.out = out;
  t.expected = &expected;
  for (int n = 1; n <= 4; ++n) as_threads(n, train, &t);
  free_outcomes(initial);
  free_outcomes(summed);
  free_outcomes(out);
}

static void bytes_reduced_are_those_of_the_closed_form(void** state) {
  (void)state;
  outcome* out = shared_outcomes();
  for (int n = 2; n <= 4; ++n) {
    trial t = plain(TRAIN("12", ""), out);
    as_threads(n, train, &t);
    uint64_t total = 0;
    for (int r = 0; r < n; ++r) total += out[r].reduce_bytes;
    /* One bucket of E elements, E not divisible by 3: the ranks together send 2(n-1)E elements a step. */
    assert_int_equal(total, (uint64_t)STEPS * 2u * (uint64_t)(n - 1) * EXACT_ELEMS * sizeof(float));
  }
  free_outcomes(out);
}

static void reductions_begin_before_backward_ends(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  trial t = plain("[strategy.data]\nplugin = \"ddp\"\nfirst_bucket_bytes = 1\nbucket_bytes = 1\n" TRAIN("2", ""), NULL);
  run->user = &t;
  session s;
  gsel_error* err = NULL;
  check_ok(open_session(run, &s, &err), err);
  const gsel_program* program = gsel_trainer_program(s.trainer);
  int32_t first_reduce = -1, last_backward = -1;
  for (int32_t i = 0; i < gsel_program_length(program); ++i) {
    gsel_instr instr;
    check_ok(gsel_program_instr(program, i, &instr, &err), err);
    if (instr.kind == GSEL_INSTR_REDUCE && first_reduce < 0) first_reduce = i;
    if (instr.kind == GSEL_INSTR_BACKWARD || instr.kind == GSEL_INSTR_BACKWARD_WEIGHT) last_backward = i;
  }
  assert_true(first_reduce > 0 && first_reduce < last_backward);
  close_session(&s);
  ranks_verdict(run, 1);
}

/* Bounded by the communicator's own timeout, which ends a reduction that never comes. */
static void until_a_reduction_is_done(void* comm) {
  while (gsel_comm_counts((const gsel_comm*)comm, GSEL_COLLECTIVE_ALLREDUCE).calls == 0) sched_yield();
}

/* The last backward callback of the first step does not return before a bucket has been reduced: it could not return
 * at all if reductions waited for the end of backward. */
static void overlap(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  s.m.in_last_backward = until_a_reduction_is_done;
  s.m.last_backward_user_data = s.comm;
  alarm(60);
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  alarm(0);
  rank_check(run, report.n_reduces == N_PARAMS);
  rank_check(run, report.n_overlapped > 0 && report.n_overlapped < N_PARAMS);
  close_session(&s);
}

static void a_bucket_is_reduced_while_backward_goes_on(void** state) {
  (void)state;
  trial t = plain("[strategy.data]\nplugin = \"ddp\"\nfirst_bucket_bytes = 1\nbucket_bytes = 1\n" TRAIN("6", ""), NULL);
  as_processes(2, overlap, &t);
}

static void norms(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
  ((outcome*)((const trial*)run->user)->out)[run->rank].loss[0] = report.gradient_norm;
  read_params(run, s.trainer, ((const trial*)run->user)->out[run->rank].params);
  close_session(&s);
}

/* The norm is that of the mean gradient, known from one step of rate 24 on a weight of 24; a clip at half of it halves
 * the step. */
static void clipping_scales_by_the_norm_of_the_mean_gradient(void** state) {
  (void)state;
  static const char form[] =
      "[train]\noptimizer = \"sgd\"\nlearning_rate = %g\nweight_decay = 0.0\nbatch = 8\nseed = 5\nclip_norm = %.17g\n";
  outcome *still = shared_outcomes(), *whole = shared_outcomes(), *half = shared_outcomes();
  char config[256];
  trial t = plain(config, still);
  t.count_all = 1;
  snprintf(config, sizeof config, form, 0.0, 1e9);
  as_threads(1, norms, &t);
  t.out = whole;
  snprintf(config, sizeof config, form, 24.0, 1e9);
  as_threads(1, norms, &t);
  double squares = 0;
  for (int i = 0; i < EXACT_ELEMS; ++i) {
    const double gradient = (still->params[i] - whole->params[i]) / 24.0;
    squares += gradient * gradient;
  }
  const double norm = sqrt(squares);
  assert_true(norm > 1 && fabs(whole->loss[0] - norm) < 1e-5 * norm);
  t.out = half;
  snprintf(config, sizeof config, form, 24.0, norm / 2);
  for (int n = 1; n <= 3; ++n) {
    as_threads(n, norms, &t);
    for (int i = 0; i < EXACT_ELEMS; ++i) {
      const double step = still->params[i] - half->params[i], wanted = (still->params[i] - whole->params[i]) / 2.0;
      assert_true(fabs(step - wanted) <= 1e-5 * (1 + fabs(wanted)));
    }
  }
  free_outcomes(still);
  free_outcomes(whole);
  free_outcomes(half);
}

/* ---- ends -------------------------------------------------------------------------------------------------- */

static void expect_failure(rank_run* run) {
  const trial* t = (const trial*)run->user;
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  gsel_status status = GSEL_OK;
  for (int i = 0; i < t->steps && !status; ++i) status = gsel_trainer_step(s.trainer, NULL, &err);
  const int mine = run->rank == t->fail_on_rank;
  if (t->at_failure)
    rank_fails(run, status, err, GSEL_ERR_PEER, "died", t->fail_on_rank);
  else
    rank_fails(run, status, err, mine ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED,
               "layer \"loss\" failed in forward on rank 1, step 2, micro-batch 0: the numbers were not right", -1);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  close_session(&s);
}

static void a_failing_callback_ends_the_step_everywhere_with_its_reason(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.fail_at_step = 2;
  t.fail_on_rank = 1;
  as_threads(3, expect_failure, &t);
  as_processes(3, expect_failure, &t);
}

/* In a child of fork every call answers at once, and releasing does not wait for threads of the parent. */
static void fork_and_call(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    gsel_work work = GSEL_WORK_INIT;
    float logits[TOKENS * VOCAB];
    alarm(20);
    int good = gsel_trainer_step(s.trainer, NULL, NULL) == GSEL_ERR_FORKED;
    good &= gsel_trainer_next_work(s.trainer, &work, NULL) == GSEL_ERR_FORKED;
    good &=
        gsel_trainer_infer(s.trainer, V_LOGITS, 1, exact_data, NULL, logits, sizeof logits, NULL) == GSEL_ERR_FORKED;
    close_session(&s);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  rank_check(run, child > 0 && waitpid(child, &status, 0) == child && status == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err); /* the parent goes on */
  close_session(&s);
}

static void a_forked_child_is_refused_and_does_not_hang(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  as_processes(2, fork_and_call, &t);
}

static void die(void) {
  raise(SIGKILL);
}

static void a_rank_killed_in_a_step_is_an_error_that_names_it(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.fail_at_step = 2;
  t.fail_on_rank = 1;
  t.at_failure = die;
  rank_run* runs = ranks_prepare(3, &t);
  pid_t pids[3];
  for (int r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], expect_failure);
  for (int r = 0; r < 3; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    assert_true(r == 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
  }
  ranks_verdict(runs, 3);
}

static void refuse_to_open(rank_run* run, const char* part) {
  session s;
  gsel_error* err = NULL;
  rank_fails(run, open_session(run, &s, &err), err, GSEL_ERR_MISMATCH, part, -1);
  rank_ok(run, gsel_barrier(s.comm, &err), err); /* the communicator is still good */
  close_session(&s);
}
static void refuse_param(rank_run* run) {
  refuse_to_open(run, "parameter \"b1\" differs between rank 0 and rank 1");
}
static void refuse_setting(rank_run* run) {
  refuse_to_open(run, "setting train.batch differs between rank 0 and rank 1");
}

static void ranks_that_disagree_on_the_model_or_the_settings_are_refused(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.wide_on_rank = 1;
  as_threads(3, refuse_param, &t);
  t.wide_on_rank = -1;
  t.other_config_on_1 = TRAIN("8", "");
  as_threads(3, refuse_setting, &t);
}

static void refuse_alone(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  const int mine = run->rank == 1;
  rank_fails(run, open_session(run, &s, &err), err, mine ? GSEL_ERR_NOT_FOUND : GSEL_ERR_PEER,
             mine ? "strategy \"nonesuch\" for the data axis could not be loaded" : "rank 1 could not make its trainer",
             -1);
  close_session(&s);
}

static void a_rank_that_cannot_start_is_reported_to_all(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.other_config_on_1 = "[strategy.data]\nplugin = \"nonesuch\"\n" TRAIN("6", "");
  as_threads(2, refuse_alone, &t);
}

/* ---- order of calls ------------------------------------------------------------------------------------------ */

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
  assert_int_equal(work.kind, GSEL_WORK_INPUT);
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
  gsel_param_desc w = GSEL_PARAM_DESC_INIT;
  w.name = gsel_str_from("w");
  w.dims = &one;
  w.n_dims = 1;
  check_ok(gsel_model_add_param(model, &w, NULL, &err), err);
  for (int v = 0; v < 3; ++v) {
    gsel_value_desc value = GSEL_VALUE_DESC_INIT;
    value.name = gsel_str_from(v == 0 ? "x" : v == 1 ? "loss" : "weight");
    value.dtype = v ? GSEL_F64 : GSEL_F32;
    value.flags = v ? GSEL_VALUE_SCALAR : GSEL_VALUE_INPUT;
    check_ok(gsel_model_add_value(model, &value, NULL, &err), err);
  }
  gsel_layer_desc layer = GSEL_LAYER_DESC_INIT;
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
  check_ok(gsel_trainer_create(model, comm, &options, &trainer, &err), err);
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
    if (work.kind == GSEL_WORK_FORWARD) *(double*)work.call->outputs[0].data = *(double*)work.call->outputs[1].data = 1;
    if (work.kind == GSEL_WORK_BACKWARD) *(float*)work.call->d_params[0].data = 1;
    if (work.kind != GSEL_WORK_DONE) check_ok(gsel_trainer_complete(trainer, work.ticket, GSEL_OK, none, &err), err);
  }
  const int expected[4] = {GSEL_WORK_INPUT, GSEL_WORK_FORWARD, GSEL_WORK_BACKWARD, GSEL_WORK_DONE};
  assert_memory_equal(kinds, expected, sizeof kinds);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_destroy(comm);
  ranks_verdict(run, 1);
}

static void inference_gives_the_forward_values_of_training(void** state) {
  (void)state;
  rank_run* run = ranks_prepare(1, NULL);
  outcome* out = shared_outcomes();
  trial t = plain("[train]\noptimizer = \"sgd\"\nlearning_rate = 0.0\nweight_decay = 0.0\nbatch = 4\nseed = 5\n", out);
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
       "trial.toml:3: strategy.data.overlap = 3 is not accepted; true or false"},
      {"[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 0\n", GSEL_ERR_CONFIG, "an integer from 1 to"},
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
      cmocka_unit_test(every_strategy_on_threads_equals_one_rank_bit_for_bit),
      cmocka_unit_test(every_strategy_on_processes_equals_one_rank_bit_for_bit),
      cmocka_unit_test(pulling_equals_pushing_bit_for_bit),
      cmocka_unit_test(the_step_is_scaled_by_the_global_weight_exactly),
      cmocka_unit_test(bytes_reduced_are_those_of_the_closed_form),
      cmocka_unit_test(reductions_begin_before_backward_ends),
      cmocka_unit_test(a_bucket_is_reduced_while_backward_goes_on),
      cmocka_unit_test(clipping_scales_by_the_norm_of_the_mean_gradient),
      cmocka_unit_test(a_failing_callback_ends_the_step_everywhere_with_its_reason),
      cmocka_unit_test(a_forked_child_is_refused_and_does_not_hang),
      cmocka_unit_test(a_rank_killed_in_a_step_is_an_error_that_names_it),
      cmocka_unit_test(ranks_that_disagree_on_the_model_or_the_settings_are_refused),
      cmocka_unit_test(a_rank_that_cannot_start_is_reported_to_all),
      cmocka_unit_test(calls_out_of_order_are_refused),
      cmocka_unit_test(layers_without_callbacks_are_pulled_and_never_pushed),
      cmocka_unit_test(inference_gives_the_forward_values_of_training),
      cmocka_unit_test(a_strategy_that_is_not_there_or_does_not_fit_is_refused_with_its_place),
  };
  const Folder folder = fresh_folder(); /* the example plugin is found here, ours beside the library */
  copy_fixture(&folder, "flat");
  const int failures = cmocka_run_group_tests_name("strategies", tests, NULL, NULL);
  remove_folder(&folder);
  return failures;
}
