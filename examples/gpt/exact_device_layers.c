/* exact_device_layers.c: the callbacks of exact_layers.c as launches of cuda/exact_kernels.cu. */
#include "exact_device_layers.h"

#include "cuda/exact_image.h"
#include "cuda/exact_kernels.h"
#include "cuda/launch.h"
#include "model.h"
#include "tensors.h"

#define EXACT_NUMBER(name, n) EXACT_##name,
enum { GPT_EXACT_KERNELS(EXACT_NUMBER) N_EXACT_KERNELS };
#define EXACT_NAME(name, n) "gpt_exact_" #name,
#define EXACT_PARAMETERS(name, n) n,
static const char* const names[] = {GPT_EXACT_KERNELS(EXACT_NAME)};
static const int parameters[] = {GPT_EXACT_KERNELS(EXACT_PARAMETERS)};

static const struct gpu_set exact_kernels = {"the exact model", gpu_exact_image, names, parameters, N_EXACT_KERNELS};

/* A thread for each of `count` elements. */
#define LAUNCH(call, kernel, count, ...)                                                                     \
  gpu_launch_of(&exact_kernels, (call)->stream, EXACT_##kernel, elements(count), GPU_ARGUMENTS(__VA_ARGS__), \
                say_of(call))

/* ---- embeddings, residual ------------------------------------------------------------------------------- */

static gsel_status token_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->outputs[0], *table = &c->params[0];
  return LAUNCH(c, token_forward, x->n_elems, P(x->data), P(c->inputs[0].data), P(table->data), N(rows_of(x)),
                N(begin_of(&c->param_shards[0], 0)), N(table->dims[0]), N(width_of(x)));
}

static gsel_status token_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &c->d_outputs[0], *d_table = &c->d_params[0];
  return LAUNCH(c, token_backward, d_table->n_elems, P(d_table->data), P(dx->data), P(c->inputs[0].data),
                N(rows_of(dx)), N(begin_of(&c->param_shards[0], 0)), N(d_table->dims[0]), N(width_of(dx)),
                N(c->accumulate));
}

static gsel_status position_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* y = &c->outputs[0];
  return LAUNCH(c, position_forward, y->n_elems, P(y->data), P(c->inputs[0].data), P(c->params[0].data), N(y->n_elems),
                N(begin_of(&c->output_shards[0], 1) * width_of(y)), N(y->dims[1] * width_of(y)));
}

static gsel_status position_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dy = &c->d_outputs[0], *d_table = &c->d_params[0];
  return LAUNCH(c, position_backward, d_table->n_elems, P(d_table->data), P(dy->data), N(dy->n_elems),
                N(d_table->n_elems), N(begin_of(&c->output_shards[0], 1) * width_of(dy)), N(dy->dims[1] * width_of(dy)),
                N(c->accumulate));
}

static gsel_status sum_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &c->d_outputs[0];
  gsel_status status = GSEL_OK;
  for (int32_t i = 0; i < c->n_inputs && !status; ++i)
    if (c->d_inputs[i].data)
      status = LAUNCH(c, folded, dy->n_elems, P(c->d_inputs[i].data), P(dy->data), N(dy->n_elems));
  return status;
}

static gsel_status residual_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* y = &c->outputs[0];
  return LAUNCH(c, residual_forward, y->n_elems, P(y->data), P(c->inputs[0].data), P(c->inputs[1].data),
                P(c->params[0].data), N(y->n_elems), N(width_of(y)));
}

static gsel_status residual_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &c->d_outputs[0];
  return LAUNCH(c, sum_rows, width_of(dy), P(c->d_params[0].data), P(dy->data), N(rows_of(dy)), N(width_of(dy)),
                N(c->accumulate));
}

/* ---- norm, linear --------------------------------------------------------------------------------------- */

static gsel_status layernorm_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &c->inputs[0];
  return LAUNCH(c, layernorm_forward, rows_of(x), P(c->outputs[0].data), P(c->saved), P(x->data), P(c->params[0].data),
                P(c->params[1].data), N(rows_of(x)), N(width_of(x)));
}

static gsel_status layernorm_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dx = &c->d_inputs[0];
  if (!dx->data) return GSEL_OK;
  return LAUNCH(c, layernorm_backward_input, rows_of(dx), P(dx->data), P(c->d_outputs[0].data), P(c->params[0].data),
                N(rows_of(dx)), N(width_of(dx)));
}

static gsel_status layernorm_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &c->inputs[0];
  return LAUNCH(c, layernorm_backward_weight, width_of(x), P(c->d_params[0].data), P(c->d_params[1].data),
                P(c->d_outputs[0].data), P(x->data), P(c->saved), N(rows_of(x)), N(width_of(x)), N(c->accumulate));
}

static gsel_status linear_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->inputs[0], *w = &c->params[0];
  return LAUNCH(c, linear_forward, rows_of(x) * w->dims[0], P(c->outputs[0].data), P(x->data), P(w->data),
                P(c->n_params > 1 ? c->params[1].data : NULL), N(rows_of(x)), N(w->dims[1]), N(w->dims[0]));
}

static gsel_status linear_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &c->d_inputs[0], *w = &c->params[0];
  if (!dx->data) return GSEL_OK;
  return LAUNCH(c, linear_backward_input, dx->n_elems, P(dx->data), P(c->d_outputs[0].data), P(w->data), N(rows_of(dx)),
                N(w->dims[1]), N(w->dims[0]));
}

static gsel_status linear_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->inputs[0], *dw = &c->d_params[0], *dy = &c->d_outputs[0];
  const gsel_status status = LAUNCH(c, linear_backward_weight, dw->n_elems, P(dw->data), P(dy->data), P(x->data),
                                    N(rows_of(x)), N(dw->dims[1]), N(dw->dims[0]), N(c->accumulate));
  if (status || c->n_params < 2) return status;
  return LAUNCH(c, sum_rows, dw->dims[0], P(c->d_params[1].data), P(dy->data), N(rows_of(x)), N(dw->dims[0]),
                N(c->accumulate));
}

/* ---- attention, gelu, loss ------------------------------------------------------------------------------ */

static int64_t head_size(const void* user_data) {
  const struct gpt_sizes* sizes = user_data;
  return sizes->width / sizes->heads;
}

static gsel_status attention_run(const gsel_call* c, void* user_data) {
  const gsel_tensor *qkv = &c->inputs[0], *y = &c->outputs[0];
  return LAUNCH(c, attention_forward, y->n_elems, P(y->data), P(qkv->data), N(c->n_samples), N(qkv->dims[1]),
                N(width_of(y)), N(head_size(user_data)));
}

static gsel_status attention_back_input(const gsel_call* c, void* user_data) {
  const gsel_tensor *qkv = &c->inputs[0], *d = &c->d_inputs[0];
  if (!d->data) return GSEL_OK;
  return LAUNCH(c, attention_backward, d->n_elems, P(d->data), P(c->d_outputs[0].data), P(qkv->data), N(c->n_samples),
                N(qkv->dims[1]), N(width_of(qkv)), N(head_size(user_data)));
}

static gsel_status gelu_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t n = c->inputs[0].n_elems;
  return LAUNCH(c, gelu_forward, n, P(c->outputs[0].data), P(c->inputs[0].data), N(n));
}

static gsel_status gelu_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t n = c->inputs[0].n_elems;
  if (!c->d_inputs[0].data) return GSEL_OK;
  return LAUNCH(c, gelu_backward, n, P(c->d_inputs[0].data), P(c->d_outputs[0].data), P(c->inputs[0].data), N(n));
}

static gsel_status loss_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &c->inputs[0];
  const int64_t n = rows_of(logits);
  const void *tops = c->reductions[0].data, *sums = c->reductions[1].data;
  if (c->phase == 0) return LAUNCH(c, loss_tops, n, P(tops), P(logits->data), N(n), N(width_of(logits)));
  if (c->phase == 1)
    return LAUNCH(c, loss_sums, n, P(sums), P(logits->data), P(tops), P(c->inputs[1].data), N(n),
                  N(begin_of(&c->input_shards[0], 2)), N(width_of(logits)));
  return LAUNCH(c, loss, 1, P(c->outputs[0].data), P(c->outputs[1].data), P(c->saved), P(tops), P(sums), N(n));
}

static gsel_status loss_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &c->inputs[0];
  if (!c->d_inputs[0].data) return GSEL_OK;
  return LAUNCH(c, loss_backward, logits->n_elems, P(c->d_inputs[0].data), P(logits->data), P(c->saved),
                P(c->inputs[1].data), N(rows_of(logits)), N(begin_of(&c->input_shards[0], 2)), N(width_of(logits)));
}

#include "layer_table.h"

const struct layer_kinds exact_device_layers = {&token, &position, &layernorm, &linear, &attention,
                                                NULL,   &gelu,     &residual,  &loss};
