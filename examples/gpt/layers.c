/* layers.c: from gsel's calls to the kernels. Each callback unpacks one gsel_call: pointers to what is lent for this
 * call, and local sizes, which a strategy may have made smaller than the model's. It keeps nothing, and takes sizes
 * from what it reads: the data of anything else may be NULL. */
#include "layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "model.h"

/* The last dimension of a tensor, and how many rows of it there are. */
static int64_t width_of(const gsel_tensor* t) {
  return t->dims[t->n_dims - 1];
}
static int64_t rows_of(const gsel_tensor* t) {
  return t->n_elems / width_of(t);
}

/* ---- embedding: it has weights only, bytes have no gradient -------------------------------------------- */

static gsel_status embedding_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &call->outputs[0], *wpe = &call->params[1];
  embedding_forward(x->data, call->inputs[0].data, call->params[0].data, wpe->data, rows_of(x), wpe->dims[0],
                    width_of(x));
  return GSEL_OK;
}

static gsel_status embedding_back_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &call->d_outputs[0], *dwte = &call->d_params[0], *dwpe = &call->d_params[1];
  embedding_backward(dwte->data, dwpe->data, dx->data, call->inputs[0].data, rows_of(dx), dwte->dims[0], dwpe->dims[0],
                     width_of(dx), call->accumulate);
  return GSEL_OK;
}

const struct layer_kind embedding_layer = {.forward = embedding_run,
                                           .backward_weight = embedding_back_weight,
                                           .weight_unread = GSEL_UNREAD_OUTPUT(0),
                                           .unread_params = 3};

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
                                           .unread_params = 2};

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
                                        .unread_params = 2};

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

const struct layer_kind gelu_layer = {
    .forward = gelu_run, .backward_input = gelu_back_input, .input_unread = GSEL_UNREAD_OUTPUT(0)};

/* ---- residual ----------------------------------------------------------------------------------------- */

static gsel_status residual_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &call->inputs[0];
  residual_forward(call->outputs[0].data, x->data, call->inputs[1].data, call->params[0].data, rows_of(x), width_of(x));
  return GSEL_OK;
}

static gsel_status residual_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &call->d_outputs[0];
  for (int32_t i = 0; i < call->n_inputs; ++i)
    if (call->d_inputs[i].data) memcpy(call->d_inputs[i].data, dy->data, (size_t)dy->n_elems * sizeof(float));
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
    .backward_input = residual_back_input,
    .backward_weight = residual_back_weight,
    .input_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_INPUT(1) | GSEL_UNREAD_OUTPUT(0),
    .weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_INPUT(1) | GSEL_UNREAD_OUTPUT(0),
    .unread_params = 1};

/* ---- loss: a sum and a weight, never a mean; gsel divides once by the weight of all ranks --------------- */

static gsel_status loss_run(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &call->inputs[0];
  const double loss =
      cross_entropy_forward(call->saved, logits->data, call->inputs[1].data, rows_of(logits), width_of(logits));
  *(double*)call->outputs[0].data = loss;
  *(double*)call->outputs[1].data = (double)rows_of(logits);
  if (isfinite(loss)) return GSEL_OK;
  snprintf(call->message, call->message_capacity, "the loss is not a finite number; try a smaller train.learning_rate");
  return GSEL_ERR_CALLBACK;
}

static gsel_status loss_back_input(const gsel_call* call, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &call->inputs[0];
  if (call->d_inputs[0].data)
    cross_entropy_backward(call->d_inputs[0].data, logits->data, call->saved, call->inputs[1].data, rows_of(logits),
                           width_of(logits));
  return GSEL_OK;
}

const struct layer_kind loss_layer = {.forward = loss_run,
                                      .backward_input = loss_back_input,
                                      .input_unread = GSEL_UNREAD_OUTPUT(0) | GSEL_UNREAD_OUTPUT(1)};
