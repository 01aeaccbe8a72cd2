/* See checked_faults.h. */
#include "support/checked_faults.h"

/* ---- memory ---- */

gsel_status writes_past_saved(const gsel_call* c, void* user) {
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

gsel_status ignores_accumulate(const gsel_call* c, void* user) {
  gsel_call overwriting = *c;
  overwriting.accumulate = 0;
  return ck_line_weight(&overwriting, user);
}
static gsel_status ignores_accumulate_of_the_second(const gsel_call* c, void* user) {
  memset(c->d_params[1].data, 0, sizeof(float) * CK_WIDTH);
  return ck_line_weight(c, user);
}
gsel_status always_adds(const gsel_call* c, void* user) {
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
gsel_status drops_by_key(const gsel_call* c, void* user) {
  ck_line(c, user);
  for (int64_t i = 0; i < c->n_samples * CK_WIDTH && !c->evaluating; ++i)
    ck_data(&c->outputs[0])[i] +=
        gsel_random_normal(c->rng_key, (uint64_t)(c->sample_ids[i / CK_WIDTH] * CK_WIDTH + i % CK_WIDTH));
  return GSEL_OK;
}

/* ---- gradients and parts ---- */

gsel_status has_the_wrong_sign(const gsel_call* c, void* user) {
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

#define FWD GSEL_FORWARD
#define BIN GSEL_BACKWARD_INPUT
#define BWT GSEL_BACKWARD_WEIGHT
#define BOTH GSEL_BACKWARD
/* clang-format off: a row per fault */
const fault kFaults[N_FAULTS] = {
    {"writes past saved", CK_LINE, FWD, writes_past_saved, GSEL_BREACH_OUTSIDE, 0, GSEL_BUFFER_SAVED, 0, 36},
    {"writes before d_params", CK_LINE, BWT, writes_before_d_params, GSEL_BREACH_OUTSIDE, 0, GSEL_BUFFER_D_PARAM, 1,
     -1},
    {"scales d_outputs in place", CK_LINE, BIN, scales_d_outputs_in_place, GSEL_BREACH_READ_ONLY, 0,
     GSEL_BUFFER_D_OUTPUT, 0, 4},
    {"clips its input", CK_LINE, FWD, clips_its_input, GSEL_BREACH_READ_ONLY, 0, GSEL_BUFFER_INPUT, 0, 2},
    {"leaves the last output", CK_LINE, FWD, leaves_the_last_output, GSEL_BREACH_UNWRITTEN, 0, GSEL_BUFFER_OUTPUT, 0,
     8},
    {"leaves rows of d_params", CK_EMBED, BWT, leaves_rows_that_no_token_reaches, GSEL_BREACH_UNWRITTEN, 0,
     GSEL_BUFFER_D_PARAM, 0, CK_ANY},
    {"reads past its input", CK_LINE, FWD, reads_past_its_input, GSEL_BREACH_STRAY_READ, 0, GSEL_BUFFER_OUTPUT, 0, 0},
    {"adds to its output", CK_LINE, FWD, adds_to_its_output, GSEL_BREACH_STRAY_READ, 0, GSEL_BUFFER_OUTPUT, 0, 0},
    {"saves half of what backward reads", CK_LINE, FWD, saves_half, GSEL_BREACH_STRAY_READ, BWT, GSEL_BUFFER_D_PARAM, 0,
     CK_ANY},
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
     GSEL_BUFFER_D_PARAM, 0, CK_ANY},
    {"ignores which rows it has", CK_EMBED, FWD, ignores_which_rows_it_has, GSEL_BREACH_PARTS, 0, GSEL_BUFFER_OUTPUT, 0,
     CK_ANY},
};
/* clang-format on */
