/* What ranks of a trainer must have in common. Where it differs, every rank names the same thing, two ranks, and what
 * it is on each of them: a setting by its key, a part of the model by its field; a call of the trainer by its name. */
#include "support/scratch.h"
#include "support/step_equals.h"

/* ---- settings ---- */

typedef struct settings {
  const char* config[2]; /* of rank 1 the second */
  const char* message;
} settings;

static void open_with_other_settings(rank_run* run) {
  const settings* c = (const settings*)run->user;
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = c->config[run->rank == 1];
  rank_fails(run, step_open(run, &m, &s, &err), err, GSEL_ERR_MISMATCH, c->message, run->rank == 1 ? 0 : 1);
  rank_ok(run, gsel_barrier(s.comm, &err), err); /* the communicator is still good */
  step_close(&s);
}

static void a_setting_that_differs_is_named_with_both_values(void** state) {
  (void)state;
  static const settings cases[] = {
      {{STEP_DDP STEP_SIGN("6", ""), STEP_DDP "bucket_bytes = 100\n" STEP_SIGN("6", "")},
       "setting strategy.data.bucket_bytes differs between rank 0 and rank 1: 100 on rank 1, not set on rank 0;"},
      {{STEP_DDP "overlap = false\n" STEP_SIGN("6", ""), STEP_DDP STEP_SIGN("6", "")},
       "setting strategy.data.overlap differs between rank 0 and rank 1: false on rank 0, not set on rank 1;"},
      {{STEP_DDP "overlap = false\n" STEP_SIGN("6", ""),
        STEP_DDP "bucket_bytes = 9\noverlap = false\n" STEP_SIGN("6", "")},
       "setting strategy.data.bucket_bytes differs between rank 0 and rank 1: 9 on rank 1, not set on rank 0;"},
      {{STEP_DDP "weights = [1, 1, 1]\n" STEP_SIGN("6", ""), STEP_DDP STEP_SIGN("6", "")},
       "setting strategy.data.weights differs between rank 0 and rank 1: [1, 1, 1] on rank 0, all alike on rank 1;"},
      {{STEP_DDP STEP_SIGN("6", ""), STEP_ZERO("1") STEP_SIGN("6", "")},
       "setting strategy.data.plugin differs between rank 0 and rank 1: ddp on rank 0, zero on rank 1;"},
      {{STEP_SIGN("6", ""), STEP_SIGN("8", "")},
       "setting train.batch differs between rank 0 and rank 1: 6 on rank 0, 8 on rank 1; make it alike on every rank"},
      {{STEP_SIGN("6", "microbatches = 1\n"), STEP_SIGN("6", "microbatches = 2\n")},
       "setting train.microbatches differs between rank 0 and rank 1: 1 on rank 0, 2 on rank 1;"},
      {{STEP_SIGN("6", ""), "[comm]\ntimeout_s = 2.5\n" STEP_SIGN("6", "")},
       "setting comm.timeout_s differs between rank 0 and rank 1: 60.0 on rank 0, 2.5 on rank 1;"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) as_threads(3, open_with_other_settings, (void*)&cases[i]);
}

/* ---- the model ---- */

typedef struct variation {
  void (*vary)(gsel_param_options*, gsel_value_options*, gsel_layer_options*, const void*); /* on rank 2 */
  const char* message;
} variation;

static int is_named(const gsel_str* name, const char* text) {
  return name->len == SIZE_MAX ? strcmp(name->data, text) == 0
                               : name->len == strlen(text) && memcmp(name->data, text, name->len) == 0;
}

static void no_decay(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)v, (void)l, (void)m;
  if (p && is_named(&p->name, "b")) p->flags |= GSEL_PARAM_NO_DECAY | GSEL_PARAM_NO_CLIP;
}
static void other_name(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)v, (void)l, (void)m;
  if (p && is_named(&p->name, "a")) p->name = gsel_str_from("weight");
}
static void with_positions(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)p, (void)l, (void)m;
  if (v && is_named(&v->name, "y")) v->sequence_dim = 1;
}
static void if_few(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)p, (void)l, (void)m;
  if (v && is_named(&v->name, "y")) v->flags |= GSEL_VALUE_REPLICATE_IF_FEW;
}
static void always_adds(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)p, (void)v, (void)m;
  if (l) l->flags |= GSEL_LAYER_ALWAYS_ACCUMULATES | GSEL_LAYER_POSITIONWISE;
}
static void swapped(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)v, (void)l, (void)m;
  if (p) p->name = gsel_str_from(is_named(&p->name, "a") ? "b" : "a");
}
static void reads_output(gsel_param_options* p, gsel_value_options* v, gsel_layer_options* l, const void* m) {
  (void)p, (void)v, (void)m;
  if (l) l->backward_weight_unread = GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED;
}

static void open_with_another_model(rank_run* run) {
  const variation* c = (const variation*)run->user;
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = STEP_SIGN("6", "");
  if (run->rank == 2) m.vary = c->vary;
  rank_fails(run, step_open(run, &m, &s, &err), err, GSEL_ERR_MISMATCH, c->message, run->rank == 2 ? 0 : 2);
  step_close(&s);
}

static void a_part_of_the_model_that_differs_is_named_with_its_field_and_both_values(void** state) {
  (void)state;
  static const variation cases[] = {
      {no_decay,
       "parameter \"b\" differs between rank 0 and rank 2: flags none on rank 0, GSEL_PARAM_NO_DECAY | "
       "GSEL_PARAM_NO_CLIP on rank 2;"},
      {other_name,
       "parameter \"a\" differs between rank 0 and rank 2: rank 0 described it, rank 2 did not; make it alike"},
      {with_positions,
       "value \"y\" differs between rank 0 and rank 2: sequence_dim 0 on rank 0, 1 on rank 2; make it alike"},
      {if_few,
       "value \"y\" differs between rank 0 and rank 2: flags none on rank 0, GSEL_VALUE_REPLICATE_IF_FEW on rank 2;"},
      {always_adds,
       "layer \"line\" differs between rank 0 and rank 2: flags none on rank 0, GSEL_LAYER_POSITIONWISE | "
       "GSEL_LAYER_ALWAYS_ACCUMULATES on rank 2;"},
      {swapped,
       "layer \"line\" differs between rank 0 and rank 2: params [\"a\", \"b\"] on rank 0, [\"b\", \"a\"] on rank 2;"},
      {reads_output,
       "layer \"line\" differs between rank 0 and rank 2: backward_weight_unread nothing on rank 0, "
       "GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_SAVED on rank 2;"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) as_threads(3, open_with_another_model, (void*)&cases[i]);
}

/* ---- calls of the trainer ---- */

enum { STEP, PULLED_STEP, EVALUATE, PULLED_EVALUATION };

typedef struct odd_call {
  int usual, odd; /* of rank 1 */
  int64_t usual_sample, odd_sample;
  const char *says, *odd_says;
} odd_call;

static gsel_status pull_all(gsel_trainer* trainer, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    const gsel_str none = {NULL, 0};
    gsel_status status = gsel_trainer_next_work(trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    gsel_status done = GSEL_OK;
    if (work.input)
      done = step_data(work.input, NULL);
    else if (work.kind == GSEL_FORWARD)
      done = work.call->layer ? step_loss_forward(work.call, NULL) : step_forward(work.call, NULL);
    else
      done = work.call->layer ? step_loss_backward(work.call, NULL) : step_backward(work.call, NULL);
    status = gsel_trainer_complete(trainer, work.ticket, done, none, err);
    if (status) return status;
  }
}

static gsel_status make_call(gsel_trainer* trainer, int call, int64_t sample, gsel_error** err) {
  if (call == STEP) return gsel_trainer_step(trainer, NULL, err);
  if (call == PULLED_STEP) return pull_all(trainer, err);
  if (call == EVALUATE) return gsel_trainer_evaluate(trainer, sample, NULL, NULL, NULL, err);
  const gsel_status status = gsel_trainer_begin_evaluation(trainer, sample, err);
  return status ? status : pull_all(trainer, err);
}

static const char* calls_config;

static void make_odd_call(rank_run* run) {
  const odd_call* c = (const odd_call*)run->user;
  const int is_odd = run->rank == 1;
  char text[700];
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  m.config = calls_config;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < 20; ++i) { /* more than are remembered */
    rank_ok(run, make_call(s.trainer, i % 4, i, &err), err);
  }
  const gsel_status status =
      make_call(s.trainer, is_odd ? c->odd : c->usual, is_odd ? c->odd_sample : c->usual_sample, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  err = NULL;
  rank_check(run, status == GSEL_ERR_MISMATCH || status == GSEL_ERR_ABORTED);
  snprintf(run->failure, sizeof run->failure, "rank %d got: %s", (int)run->rank, text);
  if (!strstr(text, c->says) || !strstr(text, c->odd_says) || !strstr(text, "make the trainer's calls alike")) return;
  run->failure[0] = '\0';
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "an earlier step failed", -1);
  step_close(&s);
}

static void a_call_of_the_trainer_against_another_is_told_as_both(void** state) {
  (void)state;
  static const odd_call cases[] = {
      {STEP, EVALUATE, 0, 6, " called gsel_trainer_step", "rank 1 called gsel_trainer_evaluate(first_sample 6)"},
      {EVALUATE, STEP, 7, 0, " called gsel_trainer_evaluate(first_sample 7)", "rank 1 called gsel_trainer_step"},
      {EVALUATE, PULLED_EVALUATION, 7, 6, " called gsel_trainer_evaluate(first_sample 7)",
       "rank 1 called gsel_trainer_evaluate(first_sample 6)"},
      {PULLED_STEP, EVALUATE, 0, 6, " called gsel_trainer_step", "rank 1 called gsel_trainer_evaluate(first_sample 6)"},
  };
  static const struct {
    const char* config;
    int ranks;
  } kinds[] = {
      {STEP_DDP STEP_SIGN("6", ""), 3},
      {STEP_ZERO("3") STEP_SIGN("6", ""), 2},
      {"[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n" STEP_SIGN("6", "microbatches = 2\n"), 2},
      {"[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n" STEP_SIGN("8", "microbatches = 2\n"), 4},
  };
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; ++k)
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
      print_message("  %d ranks, %s against %s\n", kinds[k].ranks, cases[i].says, cases[i].odd_says);
      calls_config = kinds[k].config;
      as_threads(kinds[k].ranks, make_odd_call, (void*)&cases[i]);
    }
}

/* The same where rank 1 is on another host than the others. */
static void make_odd_call_on_another_host(rank_run* run) {
  setenv("GSEL_HOST_ID", run->rank == 1 ? "far" : "near", 1);
  make_odd_call(run);
}

static int moves_bytes_between_hosts(void) {
  gsel_plugin_list* list = NULL;
  int found = 0;
  assert_int_equal(gsel_plugin_list_create(&list, NULL), GSEL_OK);
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i) {
    gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
    assert_int_equal(gsel_plugin_list_get(list, i, &info, NULL), GSEL_OK);
    found = found || strcmp(info.name.data, "gloo") == 0;
  }
  gsel_plugin_list_free(list);
  return found;
}

static void on_two_hosts(int32_t ranks, rank_body body, void* user) {
  char folder[256], place[300];
  if (!moves_bytes_between_hosts()) {
    printf("left out: ranks on several hosts, since this build has no transport between them (libgloo-dev)\n");
    return;
  }
  assert_true(make_scratch(folder, sizeof folder, "agreement"));
  snprintf(place, sizeof place, "file://%s/place", folder);
  setenv("GSEL_TEST_PLACE", place, 1);
  as_processes(ranks, body, user);
  unsetenv("GSEL_TEST_PLACE");
  assert_int_equal(remove_scratch(folder), 0);
}

static void a_call_of_the_trainer_against_another_is_told_over_hosts(void** state) {
  (void)state;
  static const odd_call against[] = {
      {STEP, EVALUATE, 0, 6, " called gsel_trainer_step", "rank 1 called gsel_trainer_evaluate(first_sample 6)"},
      {EVALUATE, EVALUATE, 7, 6, " called gsel_trainer_evaluate(first_sample 7)",
       "rank 1 called gsel_trainer_evaluate(first_sample 6)"},
  };
  calls_config = STEP_DDP STEP_SIGN("6", "");
  for (size_t i = 0; i < sizeof against / sizeof *against; ++i)
    on_two_hosts(3, make_odd_call_on_another_host, (void*)&against[i]);
}

/* ---- a mesh over hosts ---- */

static int is_warned;

static void keep_warning(gsel_log_level level, gsel_str component, gsel_str line, void* user) {
  (void)component;
  if (level == GSEL_LOG_WARN && strstr(line.data, (const char*)user)) is_warned = 1;
}

static void step_with_tensor_axis(rank_run* run) {
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  if (run->user) setenv("GSEL_HOST_ID", run->rank == 1 ? "far" : "near", 1);
  gsel_log_set(keep_warning, GSEL_LOG_WARN, (void*)(uintptr_t) "the tensor axis crosses hosts: ranks 0, 1 share", NULL);
  m.config = "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n" STEP_SIGN("6", "");
  rank_ok(run, step_open(run, &m, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  step_close(&s);
  gsel_log_set(NULL, 0, NULL, NULL);
  rank_check(run, is_warned == (run->user && run->rank == 0));
}

static void a_tensor_axis_over_hosts_is_warned_of(void** state) {
  (void)state;
  as_processes(2, step_with_tensor_axis, NULL);
  on_two_hosts(2, step_with_tensor_axis, (void*)(uintptr_t) "over hosts");
}

/* ---- reasons ---- */

static gsel_status fails_at_length(const gsel_call* c, void* user) {
  const step_model* m = (const step_model*)user;
  if (m->rank != 1) return step_forward(c, user);
  memset(c->message, 'x', c->message_capacity - 1);
  memcpy(c->message + c->message_capacity - 5, "end.", 5);
  return GSEL_ERR_INTERNAL;
}

static void fail_at_length(rank_run* run) {
  step_model m = nothing();
  step_session s;
  gsel_error* err = NULL;
  char text[2000] = "";
  m.config = (const char*)run->user;
  m.forward = fails_at_length;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  const gsel_status status = gsel_trainer_step(s.trainer, NULL, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, status == (run->rank == 1 ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED));
  const char* failed = strstr(text, "layer \"line\" failed in forward on rank 1, step 0, micro-batch 0: xxx");
  rank_check(run, failed && strstr(failed, "xend."));
  step_close(&s);
}

static void a_long_reason_reaches_every_rank_whole(void** state) {
  (void)state;
  as_threads(3, fail_at_length, (void*)(uintptr_t)(STEP_DDP STEP_SIGN("6", "")));
  as_processes(2, fail_at_length, (void*)(uintptr_t)(STEP_ZERO("2") STEP_SIGN("6", "")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_setting_that_differs_is_named_with_both_values),
      cmocka_unit_test(a_part_of_the_model_that_differs_is_named_with_its_field_and_both_values),
      cmocka_unit_test(a_call_of_the_trainer_against_another_is_told_as_both),
      cmocka_unit_test(a_call_of_the_trainer_against_another_is_told_over_hosts),
      cmocka_unit_test(a_tensor_axis_over_hosts_is_warned_of),
      cmocka_unit_test(a_long_reason_reaches_every_rank_whole),
  };
  return cmocka_run_group_tests_name("step agreement", tests, NULL, NULL);
}
