/* layers.c: from gsel's calls to the kernels. Each callback unpacks one gsel_call: pointers to what is lent for this
 * call, and local sizes, which a strategy may have made smaller than the model's. It keeps nothing, and takes sizes
 * from what it reads: the data of anything else may be NULL. Where it matters which part is here, the call says so. */
#include "layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "model.h"
#include "tensors.h"

/* ---- token embedding: it has weights only, bytes have no gradient -------------------------------------- */

static gsel_status token_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &call->outputs[0], *table = &call->params[0];
  token_forward(x->data, call->inputs[0].data, table->data, rows_of(x), begin_of(&call->param_shards[0], 0),
                table->dims[0], width_of(x));
  return GSEL_OK;
}

static gsel_status token_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &call->d_outputs[0], *dtable = &call->d_params[0];
  token_backward(dtable->data, dx->data, call->inputs[0].data, rows_of(dx), begin_of(&call->param_shards[0], 0),
                 dtable->dims[0], width_of(dx), call->accumulate);
  return GSEL_OK;
}

const struct layer_kind token_layer = {.forward = token_run,
                                       .backward_weight = token_back_weight,
                                       .weight_unread = GSEL_UNREAD_OUTPUT(0),
                                       .unread_params = 1,
                                       .flags = GSEL_LAYER_POSITIONWISE};

/* ---- position embedding: some of the positions may be elsewhere ----------------------------------------- */

static gsel_status position_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* y = &call->outputs[0];
  position_forward(y->data, call->inputs[0].data, call->params[0].data, call->n_samples,
                   begin_of(&call->output_shards[0], 1), y->dims[1], width_of(y));
  return GSEL_OK;
}

static gsel_status position_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *dy = &call->d_outputs[0], *dtable = &call->d_params[0];
  position_backward(dtable->data, dy->data, call->n_samples, dtable->dims[0], begin_of(&call->output_shards[0], 1),
                    dy->dims[1], width_of(dy), call->accumulate);
  return GSEL_OK;
}

/* The gradient of a sum is that of each of its terms. */
static gsel_status sum_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &call->d_outputs[0];
  for (int32_t i = 0; i < call->n_inputs; ++i)
    if (call->d_inputs[i].data) memcpy(call->d_inputs[i].data, dy->data, (size_t)dy->n_elems * sizeof(float));
  return GSEL_OK;
}

const struct layer_kind position_layer = {.forward = position_run,
                                          .backward_input = sum_back_input,
                                          .backward_weight = position_back_weight,
                                          .input_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0),
                                          .weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0),
                                          .unread_params = 1,
                                          .flags = GSEL_LAYER_POSITIONWISE};

/* ---- layer norm --------------------------------------------------------------------------------------- */

static gsel_status layernorm_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &call->inputs[0];
  layernorm_forward(call->outputs[0].data, call->saved, x->data, call->params[0].data, call->params[1].data, rows_of(x),
                    width_of(x));
  return GSEL_OK;
}

static gsel_status layernorm_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &call->inputs[0], *dx = &call->d_inputs[0];
  if (dx->data)
    layernorm_backward_input(dx->data, call->d_outputs[0].data, x->data, call->saved, call->params[0].data, rows_of(x),
                             width_of(x));
  return GSEL_OK;
}

static gsel_status layernorm_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &call->inputs[0];
  layernorm_backward_weight(call->d_params[0].data, call->d_params[1].data, call->d_outputs[0].data, x->data,
                            call->saved, rows_of(x), width_of(x), call->accumulate);
  return GSEL_OK;
}

const struct layer_kind layernorm_layer = {.forward = layernorm_run,
                                           .backward_input = layernorm_back_input,
                                           .backward_weight = layernorm_back_weight,
                                           .input_unread = GSEL_UNREAD_OUTPUT(0),
                                           .weight_unread = GSEL_UNREAD_OUTPUT(0),
                                           .unread_params = 2,
                                           .flags = GSEL_LAYER_POSITIONWISE};

/* ---- linear: sizes come from the weight, [out][in] ---------------------------------------------------- */

static gsel_status linear_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &call->inputs[0], *w = &call->params[0];
  linear_forward(call->outputs[0].data, x->data, w->data, call->n_params > 1 ? call->params[1].data : NULL, rows_of(x),
                 w->dims[1], w->dims[0]);
  return GSEL_OK;
}

static gsel_status linear_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &call->d_inputs[0], *w = &call->params[0];
  if (dx->data) linear_backward_input(dx->data, call->d_outputs[0].data, w->data, rows_of(dx), w->dims[1], w->dims[0]);
  return GSEL_OK;
}

static gsel_status linear_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &call->inputs[0], *dw = &call->d_params[0];
  linear_backward_weight(dw->data, call->n_params > 1 ? call->d_params[1].data : NULL, call->d_outputs[0].data, x->data,
                         rows_of(x), dw->dims[1], dw->dims[0], call->accumulate);
  return GSEL_OK;
}

const struct layer_kind linear_layer = {.forward = linear_run,
                                        .backward_input = linear_back_input,
                                        .backward_weight = linear_back_weight,
                                        .input_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0),
                                        .weight_unread = GSEL_UNREAD_OUTPUT(0),
                                        .unread_params = 2,
                                        .flags = GSEL_LAYER_POSITIONWISE};

/* ---- attention: the size of a head is the model's, how many of them are here is not -------------------- */

static int64_t head_size(const void* user_data) {
  const struct gpt_sizes* sizes = user_data;
  return sizes->width / sizes->heads;
}

static gsel_status attention_run(const gsel_call* call, void* user_data) {
  const gsel_tensor* qkv = &call->inputs[0];
  const int64_t head = head_size(user_data);
  attention_forward(call->outputs[0].data, call->saved, qkv->data, call->n_samples, qkv->dims[1], width_of(qkv) / head,
                    head);
  return GSEL_OK;
}

static gsel_status attention_back_input(const gsel_call* call, void* user_data) {
  const gsel_tensor *qkv = &call->inputs[0], *dqkv = &call->d_inputs[0];
  const int64_t head = head_size(user_data);
  if (!dqkv->data) return GSEL_OK;
  if (attention_backward(dqkv->data, call->d_outputs[0].data, qkv->data, call->saved, call->n_samples, qkv->dims[1],
                         width_of(qkv) / head, head) == 0)
    return GSEL_OK;
  snprintf(call->message, call->message_capacity, "no memory for the scores of one attention head");
  return GSEL_ERR_NOMEM;
}

const struct layer_kind attention_layer = {
    .forward = attention_run, .backward_input = attention_back_input, .input_unread = GSEL_UNREAD_OUTPUT(0)};

/* ---- gelu --------------------------------------------------------------------------------------------- */

static gsel_status gelu_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  gelu_forward(call->outputs[0].data, call->inputs[0].data, call->inputs[0].n_elems);
  return GSEL_OK;
}

static gsel_status gelu_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &call->inputs[0];
  if (call->d_inputs[0].data) gelu_backward(call->d_inputs[0].data, call->d_outputs[0].data, x->data, x->n_elems);
  return GSEL_OK;
}

const struct layer_kind gelu_layer = {.forward = gelu_run,
                                      .backward_input = gelu_back_input,
                                      .input_unread = GSEL_UNREAD_OUTPUT(0),
                                      .flags = GSEL_LAYER_POSITIONWISE};

/* ---- residual ----------------------------------------------------------------------------------------- */

static gsel_status residual_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &call->inputs[0];
  residual_forward(call->outputs[0].data, x->data, call->inputs[1].data, call->params[0].data, rows_of(x), width_of(x));
  return GSEL_OK;
}

static gsel_status residual_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &call->d_outputs[0];
  residual_backward_weight(call->d_params[0].data, dy->data, rows_of(dy), width_of(dy), call->accumulate);
  return GSEL_OK;
}

const struct layer_kind residual_layer = {
    .forward = residual_run,
    .backward_input = sum_back_input,
    .backward_weight = residual_back_weight,
    .input_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_INPUT(1) | GSEL_UNREAD_OUTPUT(0),
    .weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_INPUT(1) | GSEL_UNREAD_OUTPUT(0),
    .unread_params = 1,
    .flags = GSEL_LAYER_POSITIONWISE};

/* ---- loss: a sum and a weight, never a mean; gsel divides once by the weight of all ranks --------------- */

/* Ranks that share the vocabulary put together what each has found of its words: two numbers and a maximum for each
 * position, in place of all logits. */
static gsel_status loss_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &call->inputs[0];
  const int64_t rows = rows_of(logits);
  float *tops = call->reductions[0].data, *sums = call->reductions[1].data;
  if (call->phase == 0) {
    cross_entropy_tops(tops, logits->data, rows, width_of(logits));
    return GSEL_OK;
  }
  if (call->phase == 1) {
    cross_entropy_sums(sums, logits->data, tops, call->inputs[1].data, rows, begin_of(&call->input_shards[0], 2),
                       width_of(logits));
    return GSEL_OK;
  }
  const double loss = cross_entropy_loss(call->saved, tops, sums, rows);
  *(double*)call->outputs[0].data = loss;
  *(double*)call->outputs[1].data = (double)rows;
  if (isfinite(loss)) return GSEL_OK;
  snprintf(call->message, call->message_capacity, "the loss is not a finite number; try a smaller train.learning_rate");
  return GSEL_ERR_CALLBACK;
}

static gsel_status loss_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &call->inputs[0];
  if (call->d_inputs[0].data)
    cross_entropy_backward(call->d_inputs[0].data, logits->data, call->saved, call->inputs[1].data, rows_of(logits),
                           begin_of(&call->input_shards[0], 2), width_of(logits));
  return GSEL_OK;
}

const struct layer_kind loss_layer = {.forward = loss_run,
                                      .backward_input = loss_back_input,
                                      .input_unread = GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_OUTPUT(1),
                                      .flags = GSEL_LAYER_LOSS | GSEL_LAYER_POSITIONWISE | GSEL_LAYER_SAVES_WHOLE};

const struct layer_kinds gpt_layers = {&token_layer, &position_layer, &layernorm_layer, &linear_layer, &attention_layer,
                                       &ring_layer,  &gelu_layer,     &residual_layer,  &loss_layer};
