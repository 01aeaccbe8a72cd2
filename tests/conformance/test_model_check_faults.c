/* Each way of breaking the contract of gsel/model.h, in a model that is right but for one kernel: gsel_model_check
 * names layer, callback, buffer and element, as the first breach. */
#include <math.h>

#include "support/checked_faults.h"
#include "support/ranks.h"

#define FWD GSEL_FORWARD
#define BIN GSEL_BACKWARD_INPUT
#define BWT GSEL_BACKWARD_WEIGHT
#define BOTH GSEL_BACKWARD

static gsel_model* model_with(const checked_model* m) {
  gsel_model* model = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_model_create(&model, &err), err);
  check_ok(ck_describe(model, m, &err), err);
  return model;
}

static gsel_status check_model(gsel_model* model, gsel_model_check_report** report, gsel_error** err) {
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  options.index_limit = CK_VOCAB;
  return gsel_model_check(model, &options, report, err);
}

static void each_fault_is_found_and_named(void** state) {
  (void)state;
  static const char *const layers[] = {"embed", "line", "loss"}, *const callbacks[] = {"",
                                                                                       "",
                                                                                       "forward",
                                                                                       "backward_input",
                                                                                       "backward_weight",
                                                                                       "backward"};
  for (size_t i = 0; i < N_FAULTS; ++i) {
    const fault* f = &kFaults[i];
    checked_model m = {0};
    gsel_model_check_report* report = NULL;
    gsel_error* err = NULL;
    gsel_breach breach = GSEL_BREACH_INIT;
    char place[64];
    m.callbacks[f->layer][f->callback] = f->kernel;
    gsel_model* model = model_with(&m);
    const gsel_status status = check_model(model, &report, &err);
    if (status != GSEL_ERR_MODEL)
      fail_msg("%s: expected a breach, got %s", f->name, gsel_model_check_summary(report).data);
    print_message("  %s: %s\n", f->name, gsel_error_message(err).data);
    gsel_error* none = NULL;
    check_ok(gsel_model_check_breach(report, 0, &breach, &none), none);
    assert_string_equal(breach.text.data, gsel_error_message(err).data);
    const int callback = f->found_in ? f->found_in : f->callback;
    if (breach.kind != f->kind || breach.layer != f->layer || breach.callback != callback ||
        breach.buffer != f->buffer || breach.index != f->index ||
        (f->element != CK_ANY && breach.element != f->element))
      fail_msg(
          "%s: expected kind %d, layer %d, callback %d, buffer %d[%d], element %d; got kind %d, layer %d, callback %d, "
          "buffer %d[%d], element %d: %s",
          f->name, f->kind, f->layer, callback, f->buffer, f->index, (int)f->element, breach.kind, breach.layer,
          breach.callback, breach.buffer, breach.index, (int)breach.element, breach.text.data);
    snprintf(place, sizeof place, "layer \"%s\" %s: ", layers[f->layer], callbacks[callback]);
    assert_non_null(strstr(breach.text.data, place));
    gsel_error_free(err);
    gsel_model_check_free(report);
    gsel_model_free(model);
  }
}

static void the_model_without_a_fault_passes(void** state) {
  (void)state;
  const checked_model m = {0};
  gsel_model_check_report* report = NULL;
  gsel_error* err = NULL;
  gsel_model* model = model_with(&m);
  check_ok(check_model(model, &report, &err), err);
  assert_string_equal(gsel_model_check_summary(report).data, "kernels: 3 layers checked, no breach");
  assert_int_equal(gsel_model_check_breach_count(report), 0);
  assert_int_equal(gsel_model_check_note_count(report), 0);
  assert_string_equal(gsel_model_check_note(report, 0).data, "");
  gsel_breach breach = GSEL_BREACH_INIT;
  check_fails(gsel_model_check_breach(report, 0, &breach, &err), err, GSEL_ERR_ARG, "i is 0; there are none");
  gsel_model_check_free(report);
  gsel_model_free(model);
}

static gsel_status status_of(const checked_model* m, const gsel_model_check_options* options,
                             gsel_model_check_report** report) {
  gsel_model* model = model_with(m);
  const gsel_status status = gsel_model_check(model, options, report, NULL);
  gsel_model_free(model);
  return status;
}

static gsel_model_check_options usual(void) {
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  options.index_limit = CK_VOCAB;
  return options;
}

static void kernels_that_say_they_always_add_pass(void** state) {
  (void)state;
  checked_model m = {0};
  const gsel_model_check_options options = usual();
  m.callbacks[CK_EMBED][BWT] = always_adds;
  m.flags[CK_EMBED] = GSEL_LAYER_ALWAYS_ACCUMULATES;
  assert_int_equal(status_of(&m, &options, NULL), GSEL_OK);
  m.callbacks[CK_EMBED][BWT] = NULL; /* one that honours accumulate may say so, too */
  assert_int_equal(status_of(&m, &options, NULL), GSEL_OK);
}

/* b is one element longer than these kernels take it to be. */
static gsel_status shorter_line(const gsel_call* c, void* user) {
  ck_line(c, user);
  for (int64_t s = 0; s < c->n_samples; ++s) ck_data(&c->outputs[0])[s * CK_WIDTH + 2] -= ck_data(&c->params[1])[2];
  return GSEL_OK;
}
static gsel_status shorter_line_weight(const gsel_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) {
    ck_data(&c->d_params[0])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i] * ((const float*)c->saved)[i];
    if (i % CK_WIDTH < 2) ck_data(&c->d_params[1])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i];
  }
  return GSEL_OK;
}
static gsel_status shorter_line_both(const gsel_call* c, void* user) {
  ck_line_input(c, user);
  return shorter_line_weight(c, user);
}

static void a_parameter_that_is_too_long_for_kernels_that_always_add_is_noted(void** state) {
  (void)state;
  checked_model m = {0};
  const gsel_model_check_options options = usual();
  gsel_model_check_report* report = NULL;
  m.flags[CK_LINE] = GSEL_LAYER_ALWAYS_ACCUMULATES;
  m.callbacks[CK_LINE][FWD] = shorter_line;
  m.callbacks[CK_LINE][BWT] = shorter_line_weight;
  m.callbacks[CK_LINE][BOTH] = shorter_line_both;
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  assert_int_equal(gsel_model_check_note_count(report), 2);
  assert_non_null(strstr(gsel_model_check_note(report, 0).data,
                         "layer \"line\" backward_weight: d_params[1] \"b\": 1 of 3 elements were not added to, the "
                         "first is element 2"));
  gsel_model_check_free(report);
  memset(m.callbacks, 0, sizeof m.callbacks); /* right ones leave nothing */
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  assert_int_equal(gsel_model_check_note_count(report), 0);
  gsel_model_check_free(report);
}

static void noise_by_key_passes_and_is_noted(void** state) {
  (void)state;
  checked_model m = {0};
  const gsel_model_check_options options = usual();
  gsel_model_check_report* report = NULL;
  m.callbacks[CK_LINE][FWD] = drops_by_key;
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  assert_non_null(strstr(gsel_model_check_note(report, 0).data, "layer \"line\" forward: evaluating gives another y"));
  gsel_model_check_free(report);
}

static void what_is_skipped_is_not_looked_for(void** state) {
  (void)state;
  for (size_t i = 0; i < N_FAULTS; ++i) {
    checked_model m = {0};
    gsel_model_check_options options = usual();
    if (kFaults[i].kind < GSEL_BREACH_BATCH) continue;
    m.callbacks[kFaults[i].layer][kFaults[i].callback] = kFaults[i].kernel;
    for (int kind = GSEL_BREACH_BATCH; kind < GSEL_BREACH_KINDS; ++kind) options.skip |= 1u << kind;
    assert_int_equal(status_of(&m, &options, NULL), GSEL_OK);
  }
  gsel_model_check_options options = usual();
  const checked_model m = {0};
  options.skip = 1u << GSEL_BREACH_OUTSIDE;
  assert_int_equal(status_of(&m, &options, NULL), GSEL_ERR_ARG);
}

static void every_layer_at_fault_is_listed(void** state) {
  (void)state;
  checked_model m = {0};
  const gsel_model_check_options options = usual();
  gsel_model_check_report* report = NULL;
  gsel_breach breach = GSEL_BREACH_INIT;
  gsel_error* err = NULL;
  m.callbacks[CK_EMBED][BWT] = always_adds;
  m.callbacks[CK_LINE][FWD] = writes_past_saved; /* what it writes is drawn for the loss */
  m.callbacks[CK_LOSS_LAYER][BIN] = has_the_wrong_sign;
  assert_int_equal(status_of(&m, &options, &report), GSEL_ERR_MODEL);
  assert_string_equal(gsel_model_check_summary(report).data, "kernels: 3 layers checked, 3 breaches");
  assert_int_equal(gsel_model_check_breach_count(report), CK_LAYERS);
  for (int l = 0; l < CK_LAYERS; ++l) {
    check_ok(gsel_model_check_breach(report, l, &breach, &err), err);
    assert_int_equal(breach.layer, l);
  }
  assert_true(breach.found == -breach.expected || fabs(breach.found + breach.expected) < 1e-3);
  assert_int_equal(breach.n_dims, 2);
  assert_int_equal(breach.coordinates[1], 1);
  gsel_model_check_free(report);
}

static void batch_statistics_in_phases_pass(void** state) {
  (void)state;
  checked_model m = {.is_centred = 1};
  const gsel_model_check_options options = usual();
  gsel_model_check_report* report = NULL;
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  gsel_model_check_free(report);
}

static gsel_status fails(const gsel_call* c, void* user) {
  (void)user;
  snprintf(c->message, c->message_capacity, "no room");
  return GSEL_ERR_NOMEM;
}

static void a_callback_that_fails_is_named(void** state) {
  (void)state;
  checked_model m = {0};
  gsel_error* err = NULL;
  m.callbacks[CK_LINE][BWT] = fails;
  gsel_model* model = model_with(&m);
  check_fails(check_model(model, NULL, &err), err, GSEL_ERR_CALLBACK,
              "layer \"line\" backward_weight failed while it was checked: no room");
  gsel_model_free(model);
}

static gsel_status ck_samples(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t i = 0; i < r->n_samples; ++i) ((int32_t*)r->dst.data)[i] = (int32_t)(r->sample_ids[i] * 3 % CK_VOCAB);
  return GSEL_OK;
}

/* As [train] check = "kernels" has it: every rank is told, and none is left waiting. */
static void create_trainer(rank_run* run) {
  static const char config_text[] = "[train]\ncheck = \"kernels\"\nbatch = 4\n";
  const checked_model* m = (const checked_model*)run->user;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_comm* comm = NULL;
  gsel_config* config = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_error* err = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_config_parse(gsel_str_from(config_text), gsel_str_from("check.toml"), &config, &err), err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, ck_describe(model, m, &err), err);
  options.config = config;
  options.data = ck_samples;
  const gsel_status status = gsel_trainer_create(comm, model, &options, &trainer, &err);
  if (m->callbacks[CK_LINE][BWT]) {
    rank_fails(run, status, err, GSEL_ERR_MODEL, "layer \"line\" backward_weight: d_params[0] \"a\" element 0", -1);
  } else {
    rank_ok(run, status, err);
    rank_ok(run, gsel_trainer_step(trainer, NULL, &err), err);
  }
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

static void a_trainer_checks_first_where_the_configuration_says_so(void** state) {
  (void)state;
  checked_model m = {0};
  for (int ranks = 1; ranks <= 2; ++ranks) as_threads(ranks, create_trainer, &m);
  m.callbacks[CK_LINE][BWT] = ignores_accumulate;
  for (int ranks = 1; ranks <= 2; ++ranks) as_threads(ranks, create_trainer, &m);
}

/* ---- the data ---- */

static gsel_status one_sample_too_many(const gsel_data_request* r, void* user) {
  gsel_data_request more = *r;
  int64_t ids[8] = {0};
  memcpy(ids, r->sample_ids, sizeof *ids * (size_t)r->n_samples);
  more.sample_ids = ids;
  more.n_samples = r->n_samples + 1;
  return ck_samples(&more, user);
}
static gsel_status the_last_sample_unfilled(const gsel_data_request* r, void* user) {
  gsel_data_request fewer = *r;
  fewer.n_samples = r->n_samples - 1;
  return ck_samples(&fewer, user);
}
static void* kept_dst;
static gsel_status to_the_first_dst(const gsel_data_request* r, void* user) {
  gsel_data_request kept = *r;
  if (!kept_dst) kept_dst = r->dst.data;
  kept.dst.data = kept_dst;
  return ck_samples(&kept, user);
}
static gsel_status adds_to_dst(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t i = 0; i < r->n_samples; ++i) ((int32_t*)r->dst.data)[i] &= 0x70;
  return GSEL_OK;
}
static gsel_status the_next_ones(const gsel_data_request* r, void* user) {
  static int32_t next;
  (void)user;
  for (int64_t i = 0; i < r->n_samples; ++i) ((int32_t*)r->dst.data)[i] = next++ % CK_VOCAB;
  return GSEL_OK;
}

static void faults_of_the_data_are_found_and_named(void** state) {
  (void)state;
  static const struct {
    gsel_data_fn data;
    gsel_breach_kind kind;
    int64_t element;
    const char* text;
  } rows[] = {
      {one_sample_too_many, GSEL_BREACH_OUTSIDE, 3,
       "data: dst of input \"tokens\" element 3: 4 bytes were written past the end of 3 elements"},
      {the_last_sample_unfilled, GSEL_BREACH_UNWRITTEN, 2,
       "data: dst of input \"tokens\" element 2: was left unwritten, of sample 2; all 3 samples"},
      {to_the_first_dst, GSEL_BREACH_KEPT_POINTER, 0, "data: dst of input \"tokens\" element 0: memory of an earlier"},
      {adds_to_dst, GSEL_BREACH_STRAY_READ, 0, "data: dst of input \"tokens\" element 0: is 112 or 48"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    const checked_model m = {0};
    gsel_model_check_options options = usual();
    gsel_model_check_report* report = NULL;
    gsel_breach breach = GSEL_BREACH_INIT;
    gsel_error* err = NULL;
    options.data = rows[i].data;
    assert_int_equal(status_of(&m, &options, &report), GSEL_ERR_MODEL);
    check_ok(gsel_model_check_breach(report, 0, &breach, &err), err);
    print_message("  %s\n", breach.text.data);
    assert_int_equal(breach.kind, rows[i].kind);
    assert_int_equal(breach.layer, -1);
    assert_int_equal(breach.callback, GSEL_INPUT);
    assert_int_equal(breach.buffer, GSEL_BUFFER_DATA);
    assert_int_equal(breach.index, CK_TOKENS);
    if (i != 3) assert_int_equal(breach.element, rows[i].element);
    assert_int_equal(strncmp(breach.text.data, rows[i].text, strlen(rows[i].text)), 0);
    assert_int_equal(gsel_model_check_breach_count(report), 1); /* layers get random numbers instead */
    gsel_model_check_free(report);
  }
}

static void right_data_passes_and_a_reader_that_goes_on_is_noted(void** state) {
  (void)state;
  const checked_model m = {0};
  gsel_model_check_options options = usual();
  gsel_model_check_report* report = NULL;
  options.data = ck_samples;
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  assert_int_equal(gsel_model_check_note_count(report), 0);
  gsel_model_check_free(report);
  options.data = the_next_ones;
  assert_int_equal(status_of(&m, &options, &report), GSEL_OK);
  assert_non_null(strstr(gsel_model_check_note(report, 0).data, "data: input \"tokens\" was not the same"));
  gsel_model_check_free(report);
}

/* ---- an optimizer ---- */

static float stepped(float p, float g, float* m) {
  *m = 0.5f * *m + g;
  return p - 0.01f * *m;
}
static gsel_status rule(const gsel_optimizer_call* c, void* user) {
  (void)user;
  if (c->phase == 1)
    for (int64_t i = 0; i < c->count; ++i)
      c->values[i] -= c->gradient[i] * (float)(0.01 * c->param_norm / (c->update_norm + 1e-3));
  else if (c->param_norm != 0)
    return GSEL_ERR_INTERNAL;
  else
    for (int64_t i = 0; i < c->count; ++i) c->values[i] = stepped(c->values[i], c->gradient[i], &c->states[0][i]);
  return GSEL_OK;
}
/* As vector code whose last elements are computed in another way. */
static gsel_status rounds_the_remainder_otherwise(const gsel_optimizer_call* c, void* user) {
  const int64_t whole = c->count / 4 * 4;
  gsel_optimizer_call vector = *c;
  vector.count = whole;
  rule(&vector, user);
  for (int64_t i = whole; i < c->count; ++i) {
    c->values[i] = stepped(c->values[i], c->gradient[i], &c->states[0][i]);
    c->values[i] *= 1.0000002f;
  }
  return GSEL_OK;
}
static gsel_status steps_one_too_many(const gsel_optimizer_call* c, void* user) {
  rule(c, user);
  ((volatile float*)c->states[0])[c->count] = 1;
  return GSEL_OK;
}
static gsel_status keeps_its_states(const gsel_optimizer_call* c, void* user) {
  static float* kept;
  if (!kept) kept = c->states[0];
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) c->values[i] = stepped(c->values[i], c->gradient[i], &kept[i]);
  return GSEL_OK;
}
static gsel_status counts_its_steps(const gsel_optimizer_call* c, void* user) {
  static int calls;
  rule(c, user);
  c->values[0] += 1e-3f * (float)++calls;
  return GSEL_OK;
}
static gsel_status refuses(const gsel_optimizer_call* c, void* user) {
  (void)user;
  snprintf(c->message, c->message_capacity, "no patience left");
  return GSEL_ERR_INTERNAL;
}

static gsel_optimizer_options stepping(gsel_optimizer_fn step, int32_t needs) {
  gsel_optimizer_options options = GSEL_OPTIMIZER_OPTIONS_INIT;
  options.step = step;
  options.needs = needs;
  options.n_states = 1;
  return options;
}

static void faults_of_an_optimizer_are_found_and_named(void** state) {
  (void)state;
  static const struct {
    gsel_optimizer_fn step;
    gsel_breach_kind kind;
    int32_t buffer;
    const char* text;
  } rows[] = {
      {rounds_the_remainder_otherwise, GSEL_BREACH_PIECES, GSEL_BUFFER_VALUES,
       "stepped in pieces, as strategies that shard parameters do"},
      {steps_one_too_many, GSEL_BREACH_OUTSIDE, GSEL_BUFFER_STATES, "4 bytes were written past the end"},
      {keeps_its_states, GSEL_BREACH_KEPT_POINTER, GSEL_BUFFER_VALUES, "is NaN once the buffers have moved"},
      {counts_its_steps, GSEL_BREACH_NOT_REPEATABLE, GSEL_BUFFER_VALUES, "in a second run with the same bytes"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    const checked_model m = {0};
    gsel_model_check_options options = usual();
    const gsel_optimizer_options optimizer = stepping(rows[i].step, GSEL_NEEDS_ELEMENTS);
    gsel_model_check_report* report = NULL;
    gsel_breach breach = GSEL_BREACH_INIT;
    gsel_error* err = NULL;
    options.optimizer = &optimizer;
    assert_int_equal(status_of(&m, &options, &report), GSEL_ERR_MODEL);
    check_ok(gsel_model_check_breach(report, 0, &breach, &err), err);
    print_message("  %s\n", breach.text.data);
    assert_int_equal(breach.kind, rows[i].kind);
    assert_int_equal(breach.buffer, rows[i].buffer);
    assert_true(breach.layer == -1 && breach.callback == 0);
    assert_int_equal(strncmp(breach.text.data, "optimizer on parameter \"", 24), 0);
    assert_non_null(strstr(breach.text.data, rows[i].text));
    gsel_model_check_free(report);
    if (rows[i].kind != GSEL_BREACH_PIECES) continue;
    options.skip = 1u << GSEL_BREACH_PIECES;
    assert_int_equal(status_of(&m, &options, NULL), GSEL_OK);
  }
}

static void a_right_optimizer_passes_whatever_it_needs(void** state) {
  (void)state;
  const checked_model m = {0};
  for (int32_t needs = GSEL_NEEDS_ELEMENTS; needs <= GSEL_NEEDS_WHOLE_PARAM; ++needs) {
    gsel_model_check_options options = usual();
    const gsel_optimizer_options optimizer = stepping(rule, needs);
    options.optimizer = &optimizer;
    assert_int_equal(status_of(&m, &options, NULL), GSEL_OK);
  }
  gsel_model_check_options options = usual();
  gsel_optimizer_options optimizer = stepping(rounds_the_remainder_otherwise, GSEL_NEEDS_WHOLE_PARAM);
  gsel_error* err = NULL;
  gsel_model* model = model_with(&m);
  options.optimizer = &optimizer; /* whole parameters alone are what it gets */
  check_ok(gsel_model_check(model, &options, NULL, &err), err);
  optimizer.step = refuses;
  check_fails(gsel_model_check(model, &options, NULL, &err), err, GSEL_ERR_CALLBACK,
              "the optimizer failed on parameter \"table\" while it was checked: no patience left");
  optimizer.n_states = 5;
  check_fails(gsel_model_check(model, &options, NULL, &err), err, GSEL_ERR_ARG, "n_states is 5");
  gsel_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_model_without_a_fault_passes),
      cmocka_unit_test(each_fault_is_found_and_named),
      cmocka_unit_test(kernels_that_say_they_always_add_pass),
      cmocka_unit_test(a_parameter_that_is_too_long_for_kernels_that_always_add_is_noted),
      cmocka_unit_test(noise_by_key_passes_and_is_noted),
      cmocka_unit_test(what_is_skipped_is_not_looked_for),
      cmocka_unit_test(every_layer_at_fault_is_listed),
      cmocka_unit_test(batch_statistics_in_phases_pass),
      cmocka_unit_test(a_callback_that_fails_is_named),
      cmocka_unit_test(faults_of_the_data_are_found_and_named),
      cmocka_unit_test(right_data_passes_and_a_reader_that_goes_on_is_noted),
      cmocka_unit_test(faults_of_an_optimizer_are_found_and_named),
      cmocka_unit_test(a_right_optimizer_passes_whatever_it_needs),
      cmocka_unit_test(a_trainer_checks_first_where_the_configuration_says_so),
  };
  return cmocka_run_group_tests_name("model check, faults", tests, NULL, NULL);
}
