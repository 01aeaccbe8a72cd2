/* Each way of breaking the contract of gsel/model.h, in a model that is right but for one kernel: gsel_model_check
 * names layer, callback, buffer and element, as the first breach. */
#include <math.h>

#include "support/checked_model.h"
#include "support/ranks.h"

/* ---- memory ---- */

static gsel_status writes_past_saved(const gsel_call* c, void* user) {
  ck_line(c, user);
  ((volatile float*)c->saved)[c->n_samples * CK_WIDTH] = 1;
  return GSEL_OK;
}
static gsel_status writes_before_d_params(const gsel_call* c, void* user) {
  ck_line_weight(c, user);
  ((volatile float*)c->d_params[1].data)[-1] = 1;
  return GSEL_OK;
}
static gsel_status scales_d_outputs_in_place(const gsel_call* c, void* user) {
  ck_line_input(c, user);
  ck_data(&c->d_outputs[0])[4] *= 0.5f;
  return GSEL_OK;
}
static gsel_status clips_its_input(const gsel_call* c, void* user) {
  ck_data(&c->inputs[0])[2] = 0;
  return ck_line(c, user);
}
static gsel_status leaves_the_last_output(const gsel_call* c, void* user) {
  gsel_call fewer = *c;
  float last;
  const size_t at = (size_t)(c->n_samples * CK_WIDTH - 1);
  memcpy(&last, ck_data(&c->outputs[0]) + at, sizeof last);
  ck_line(&fewer, user);
  memcpy(ck_data(&c->outputs[0]) + at, &last, sizeof last);
  return GSEL_OK;
}
static gsel_status leaves_rows_that_no_token_reaches(const gsel_call* c, void* user) {
  for (int64_t s = 0; s < c->n_samples && !c->accumulate; ++s)
    memset(ck_row(c, &c->d_params[0], s), 0, sizeof(float) * CK_WIDTH);
  gsel_call adding = *c;
  adding.accumulate = 1;
  return ck_embed_weight(&adding, user);
}
static gsel_status reads_past_its_input(const gsel_call* c, void* user) {
  ck_line(c, user);
  const float* x = ck_data(&c->inputs[0]);
  float next;
  memcpy(&next, x + c->n_samples * CK_WIDTH, sizeof next);
  ck_data(&c->outputs[0])[0] += next;
  return GSEL_OK;
}
static gsel_status adds_to_its_output(const gsel_call* c, void* user) {
  float before[3 * CK_WIDTH];
  memcpy(before, c->outputs[0].data, sizeof(float) * CK_WIDTH * (size_t)c->n_samples);
  ck_line(c, user);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) ck_data(&c->outputs[0])[i] += before[i];
  return GSEL_OK;
}
static gsel_status saves_half(const gsel_call* c, void* user) {
  char kept[3 * CK_WIDTH * sizeof(float)];
  const size_t half = CK_WIDTH * sizeof(float) * (size_t)c->n_samples / 2;
  memcpy(kept, (char*)c->saved + half, half);
  ck_line(c, user);
  memcpy((char*)c->saved + half, kept, half);
  return GSEL_OK;
}
static gsel_status weight_reads_params(const gsel_call* c, void* user) {
  ck_line_weight(c, user);
  if (c->params[0].data) ck_data(&c->d_params[0])[1] += ck_data(&c->params[0])[1];
  return GSEL_OK;
}
static gsel_status input_reads_what_it_called_unread(const gsel_call* c, void* user) {
  ck_line_input(c, user);
  if (c->inputs[0].data) ck_data(&c->d_inputs[0])[5] += ck_data(&c->inputs[0])[5];
  return GSEL_OK;
}
static gsel_status keeps_its_params(const gsel_call* c, void* user) {
  static const float* kept;
  if (!kept) kept = ck_data(&c->params[1]);
  ck_line(c, user);
  float b;
  memcpy(&b, kept, sizeof b);
  ck_data(&c->outputs[0])[0] += b - ck_data(&c->params[1])[0];
  return GSEL_OK;
}
static gsel_status counts_its_calls(const gsel_call* c, void* user) {
  static int calls;
  ck_line(c, user);
  ck_data(&c->outputs[0])[7] += 1e-3f * (float)++calls;
  return GSEL_OK;
}

/* ---- sums ---- */

static gsel_status ignores_accumulate(const gsel_call* c, void* user) {
  gsel_call overwriting = *c;
  overwriting.accumulate = 0;
  return ck_line_weight(&overwriting, user);
}
static gsel_status ignores_accumulate_of_the_second(const gsel_call* c, void* user) {
  memset(c->d_params[1].data, 0, sizeof(float) * CK_WIDTH);
  return ck_line_weight(c, user);
}
static gsel_status always_adds(const gsel_call* c, void* user) {
  gsel_call adding = *c;
  adding.accumulate = 1;
  return ck_embed_weight(&adding, user);
}
static gsel_status doubles_what_is_there(const gsel_call* c, void* user) {
  for (int i = 0; i < CK_WIDTH && c->accumulate; ++i) ck_data(&c->d_params[1])[i] *= 2;
  return ck_line_weight(c, user);
}
static gsel_status says_it_produced_nothing(const gsel_call* c, void* user) {
  c->produced[0] = 0;
  return ck_line_weight(c, user);
}
static gsel_status divides_by_the_samples(const gsel_call* c, void* user) {
  ck_loss(c, user);
  *(double*)c->outputs[0].data /= (double)c->n_samples;
  return GSEL_OK;
}
static gsel_status subtracts_the_mean_of_the_batch(const gsel_call* c, void* user) {
  float mean = 0;
  ck_line(c, user);
  for (int64_t s = 0; s < c->n_samples; ++s) mean += ck_data(&c->inputs[0])[s * CK_WIDTH] / (float)c->n_samples;
  for (int64_t s = 0; s < c->n_samples; ++s) ck_data(&c->outputs[0])[s * CK_WIDTH] -= mean;
  return GSEL_OK;
}
static gsel_status halves_the_gradient_of_b(const gsel_call* c, void* user) {
  ck_line_input(c, user);
  ck_clear(c);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH; ++i) {
    ck_data(&c->d_params[0])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i] * ((const float*)c->saved)[i];
    ck_data(&c->d_params[1])[i % CK_WIDTH] += ck_data(&c->d_outputs[0])[i] / 2;
  }
  return GSEL_OK;
}
static gsel_status scales_when_evaluating(const gsel_call* c, void* user) {
  ck_line(c, user);
  if (c->evaluating) ck_data(&c->outputs[0])[3] *= 0.9f;
  return GSEL_OK;
}
static gsel_status drops_by_key(const gsel_call* c, void* user) {
  ck_line(c, user);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH && !c->evaluating; ++i)
    ck_data(&c->outputs[0])[i] +=
        gsel_random_normal(c->rng_key, (uint64_t)(c->sample_ids[i / CK_WIDTH] * CK_WIDTH + i % CK_WIDTH));
  return GSEL_OK;
}

/* ---- gradients and parts ---- */

static gsel_status has_the_wrong_sign(const gsel_call* c, void* user) {
  ck_loss_input(c, user);
  for (int64_t s = 0; s < c->n_samples; ++s) ck_data(&c->d_inputs[0])[s * CK_WIDTH + 1] *= -1;
  return GSEL_OK;
}
static gsel_status doubles_the_gradient(const gsel_call* c, void* user) {
  return ck_embed_weight(c, user) || ck_embed_weight(&(gsel_call){.n_samples = c->n_samples,
                                                                  .inputs = c->inputs,
                                                                  .d_outputs = c->d_outputs,
                                                                  .d_params = c->d_params,
                                                                  .param_shards = c->param_shards,
                                                                  .accumulate = 1},
                                                     user);
}
static gsel_status ignores_which_rows_it_has(const gsel_call* c, void* user) {
  const gsel_shard all = {-1, 1, 0, 0, 0};
  gsel_call whole = *c;
  whole.param_shards = &all;
  return ck_embed(&whole, user);
}

typedef struct fault {
  const char* name;
  int layer, callback; /* GSEL_WORK_* */
  gsel_layer_fn kernel;
  gsel_breach_kind kind;
  int found_in; /* callback; 0: the same */
  int32_t buffer, index;
  int64_t element; /* -100: any */
} fault;
#define FWD GSEL_FORWARD
#define BIN GSEL_BACKWARD_INPUT
#define BWT GSEL_BACKWARD_WEIGHT
#define BOTH GSEL_BACKWARD
enum { ANY = -100 };
/* clang-format off: a row per fault */
static const fault kFaults[] = {
    {"writes past saved", CK_LINE, FWD, writes_past_saved, GSEL_BREACH_OUTSIDE, 0, GSEL_BUFFER_SAVED, 0, 36},
    {"writes before d_params", CK_LINE, BWT, writes_before_d_params, GSEL_BREACH_OUTSIDE, 0, GSEL_BUFFER_D_PARAM, 1,
     -1},
    {"scales d_outputs in place", CK_LINE, BIN, scales_d_outputs_in_place, GSEL_BREACH_READ_ONLY, 0,
     GSEL_BUFFER_D_OUTPUT, 0, 4},
    {"clips its input", CK_LINE, FWD, clips_its_input, GSEL_BREACH_READ_ONLY, 0, GSEL_BUFFER_INPUT, 0, 2},
    {"leaves the last output", CK_LINE, FWD, leaves_the_last_output, GSEL_BREACH_UNWRITTEN, 0, GSEL_BUFFER_OUTPUT, 0,
     8},
    {"leaves rows of d_params", CK_EMBED, BWT, leaves_rows_that_no_token_reaches, GSEL_BREACH_UNWRITTEN, 0,
     GSEL_BUFFER_D_PARAM, 0, ANY},
    {"reads past its input", CK_LINE, FWD, reads_past_its_input, GSEL_BREACH_STRAY_READ, 0, GSEL_BUFFER_OUTPUT, 0, 0},
    {"adds to its output", CK_LINE, FWD, adds_to_its_output, GSEL_BREACH_STRAY_READ, 0, GSEL_BUFFER_OUTPUT, 0, 0},
    {"saves half of what backward reads", CK_LINE, FWD, saves_half, GSEL_BREACH_STRAY_READ, BWT, GSEL_BUFFER_D_PARAM, 0,
     ANY},
    {"backward_weight reads params", CK_LINE, BWT, weight_reads_params, GSEL_BREACH_UNREAD, 0, GSEL_BUFFER_D_PARAM, 0,
     1},
    {"backward_input reads an unread input", CK_LINE, BIN, input_reads_what_it_called_unread, GSEL_BREACH_UNREAD, 0,
     GSEL_BUFFER_D_INPUT, 0, 5},
    {"keeps a pointer", CK_LINE, FWD, keeps_its_params, GSEL_BREACH_KEPT_POINTER, 0, GSEL_BUFFER_OUTPUT, 0, 0},
    {"counts its calls", CK_LINE, FWD, counts_its_calls, GSEL_BREACH_NOT_REPEATABLE, 0, GSEL_BUFFER_OUTPUT, 0, 7},
    {"ignores accumulate", CK_LINE, BWT, ignores_accumulate, GSEL_BREACH_NOT_ACCUMULATED, 0, GSEL_BUFFER_D_PARAM, 0, 0},
    {"ignores accumulate of one parameter", CK_LINE, BWT, ignores_accumulate_of_the_second, GSEL_BREACH_NOT_ACCUMULATED,
     0, GSEL_BUFFER_D_PARAM, 1, 0},
    {"always adds", CK_EMBED, BWT, always_adds, GSEL_BREACH_ALWAYS_ADDED, 0, GSEL_BUFFER_D_PARAM, 0, 0},
    {"doubles what is there", CK_LINE, BWT, doubles_what_is_there, GSEL_BREACH_WRONG_SUM, 0, GSEL_BUFFER_D_PARAM, 1, 0},
    {"writes what it says it did not produce", CK_LINE, BWT, says_it_produced_nothing, GSEL_BREACH_PRODUCED, 0,
     GSEL_BUFFER_D_PARAM, 0, 0},
    {"divides by the samples", CK_LOSS_LAYER, FWD, divides_by_the_samples, GSEL_BREACH_BATCH, 0, GSEL_BUFFER_OUTPUT, 0,
     0},
    {"subtracts the mean of the batch", CK_LINE, FWD, subtracts_the_mean_of_the_batch, GSEL_BREACH_BATCH, 0,
     GSEL_BUFFER_OUTPUT, 0, 0},
    {"gives another gradient in the fused backward", CK_LINE, BOTH, halves_the_gradient_of_b, GSEL_BREACH_HALVES, BWT,
     GSEL_BUFFER_D_PARAM, 1, 0},
    {"scales when evaluating", CK_LINE, FWD, scales_when_evaluating, GSEL_BREACH_EVALUATION, 0, GSEL_BUFFER_OUTPUT, 0,
     3},
    {"has the wrong sign in one element", CK_LOSS_LAYER, BIN, has_the_wrong_sign, GSEL_BREACH_GRADIENT, 0,
     GSEL_BUFFER_D_INPUT, 0, 1},
    {"doubles the gradient of a parameter", CK_EMBED, BWT, doubles_the_gradient, GSEL_BREACH_GRADIENT, 0,
     GSEL_BUFFER_D_PARAM, 0, ANY},
    {"ignores which rows it has", CK_EMBED, FWD, ignores_which_rows_it_has, GSEL_BREACH_PARTS, 0, GSEL_BUFFER_OUTPUT, 0,
     ANY},
};
/* clang-format on */

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
  for (size_t i = 0; i < sizeof kFaults / sizeof *kFaults; ++i) {
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
        breach.buffer != f->buffer || breach.index != f->index || (f->element != ANY && breach.element != f->element))
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
  for (size_t i = 0; i < sizeof kFaults / sizeof *kFaults; ++i) {
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
      {rounds_the_remainder_otherwise, GSEL_BREACH_PIECES, GSEL_BUFFER_VALUES, "stepped in pieces, as zero and tp"},
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
