/* device_layers.c: from gsel's calls to the kernels of kernels.cu. Each callback enqueues work on the stream of
 * the call and returns: nobody waits, and what the call lends is memory of the device, which the host cannot read.
 * Flags and what is left unread are those of layers.c.
 *
 * The loss layer of layers.c fails when its loss is not finite. Here nobody knows the loss yet: gsel reads it at the
 * end of the step, see [train] non_finite. */
#include "device_layers.h"

#include <string.h>

#include "cuda/launch.h"
#include "cuda/products.h"
#include "device_ring.h"
#include "tensors.h"

/* ---- launches --------------------------------------------------------------------------------------------- */

/* The kernel for what the call's values are, f32 or bf16. */
#define LAUNCH(call, kernel, blocks, ...) \
  gpu_launch((call)->stream, typed_kernel(call, GPT_##kernel), blocks, GPU_ARGUMENTS(__VA_ARGS__), say_of(call))

static int64_t rows(int64_t n) {
  return blocks_of(n, GPT_ROWS);
}
static int64_t columns(int64_t n) {
  return blocks_of(n, GPT_LANES);
}
static int64_t tiles(int64_t m, int64_t n) {
  return blocks_of(m, GPT_TILE) * blocks_of(n, GPT_TILE);
}

/* ---- embedding -------------------------------------------------------------------------------------------- */

static gsel_status token_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->outputs[0], *table = &c->params[0];
  return LAUNCH(c, token_forward, elements(x->n_elems), P(x->data), P(c->inputs[0].data), P(table->data), N(rows_of(x)),
                N(begin_of(&c->param_shards[0], 0)), N(table->dims[0]), N(width_of(x)));
}

static gsel_status token_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dx = &c->d_outputs[0], *d_table = &c->d_params[0];
  return LAUNCH(c, token_backward, elements(d_table->n_elems), P(d_table->data), P(dx->data), P(c->inputs[0].data),
                N(rows_of(dx)), N(begin_of(&c->param_shards[0], 0)), N(d_table->dims[0]), N(width_of(dx)),
                N(c->accumulate));
}

static gsel_status position_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* y = &c->outputs[0];
  return LAUNCH(c, position_forward, elements(y->n_elems), P(y->data), P(c->inputs[0].data), P(c->params[0].data),
                N(c->n_samples), N(begin_of(&c->output_shards[0], 1)), N(y->dims[1]), N(width_of(y)));
}

static gsel_status position_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *dy = &c->d_outputs[0], *d_table = &c->d_params[0];
  return LAUNCH(c, position_backward, elements(d_table->n_elems), P(d_table->data), P(dy->data), N(c->n_samples),
                N(d_table->dims[0]), N(begin_of(&c->output_shards[0], 1)), N(dy->dims[1]), N(width_of(dy)),
                N(c->accumulate));
}

/* The gradient of a sum is that of each of its terms. */
static gsel_status sum_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &c->d_outputs[0];
  gsel_status status = GSEL_OK;
  for (int32_t i = 0; i < c->n_inputs && !status; ++i)
    if (c->d_inputs[i].data)
      status = gpu_copy(c->stream, c->d_inputs[i].data, dy->data, (size_t)dy->n_elems * gsel_dtype_bytes(dy->dtype),
                        say_of(c));
  return status;
}

/* ---- layer norm ------------------------------------------------------------------------------------------- */

static gsel_status layernorm_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &c->inputs[0];
  return LAUNCH(c, layernorm_forward, rows(rows_of(x)), P(c->outputs[0].data), P(c->saved), P(x->data),
                P(c->params[0].data), P(c->params[1].data), N(rows_of(x)), N(width_of(x)));
}

static gsel_status layernorm_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor *x = &c->inputs[0], *dx = &c->d_inputs[0];
  if (!dx->data) return GSEL_OK;
  return LAUNCH(c, layernorm_backward_input, rows(rows_of(x)), P(dx->data), P(c->d_outputs[0].data), P(x->data),
                P(c->saved), P(c->params[0].data), N(rows_of(x)), N(width_of(x)));
}

static gsel_status layernorm_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &c->inputs[0];
  return LAUNCH(c, layernorm_backward_weight, columns(width_of(x)), P(c->d_params[0].data), P(c->d_params[1].data),
                P(c->d_outputs[0].data), P(x->data), P(c->saved), N(rows_of(x)), N(width_of(x)), N(c->accumulate));
}

/* ---- linear ----------------------------------------------------------------------------------------------- */

/* By cuBLASLt where the sizes say so. */
static int by_library(const void* user_data) {
  const struct gpt_sizes* sizes = user_data;
  return sizes->products == GPT_CUBLASLT;
}

static gsel_status linear_run(const gsel_call* c, void* user_data) {
  const gsel_tensor *x = &c->inputs[0], *w = &c->params[0], *y = &c->outputs[0];
  const void* bias = c->n_params > 1 ? c->params[1].data : NULL;
  const struct gpu_product product = {.d = y->data,
                                      .a = x->data,
                                      .b = w->data,
                                      .bias = bias,
                                      .rows = rows_of(x),
                                      .columns = w->dims[0],
                                      .depth = w->dims[1],
                                      .b_transposed = 1,
                                      .type = y->dtype,
                                      .d_type = y->dtype};
  if (by_library(user_data)) return gpu_multiply(c->stream, &product, say_of(c));
  return LAUNCH(c, linear_forward, tiles(rows_of(x), w->dims[0]), P(y->data), P(x->data), P(w->data), P(bias),
                N(rows_of(x)), N(w->dims[1]), N(w->dims[0]));
}

static gsel_status linear_back_input(const gsel_call* c, void* user_data) {
  const gsel_tensor *dx = &c->d_inputs[0], *w = &c->params[0];
  if (!dx->data) return GSEL_OK;
  const struct gpu_product product = {.d = dx->data,
                                      .a = c->d_outputs[0].data,
                                      .b = w->data,
                                      .rows = rows_of(dx),
                                      .columns = w->dims[1],
                                      .depth = w->dims[0],
                                      .type = dx->dtype,
                                      .d_type = dx->dtype};
  if (by_library(user_data)) return gpu_multiply(c->stream, &product, say_of(c));
  return LAUNCH(c, linear_backward_input, tiles(rows_of(dx), w->dims[1]), P(dx->data), P(c->d_outputs[0].data),
                P(w->data), N(rows_of(dx)), N(w->dims[1]), N(w->dims[0]));
}

static gsel_status linear_back_weight(const gsel_call* c, void* user_data) {
  const gsel_tensor *x = &c->inputs[0], *dw = &c->d_params[0], *dy = &c->d_outputs[0];
  const struct gpu_product product = {.d = dw->data,
                                      .a = dy->data,
                                      .b = x->data,
                                      .rows = dw->dims[0],
                                      .columns = dw->dims[1],
                                      .depth = rows_of(x),
                                      .a_transposed = 1,
                                      .adds = c->accumulate,
                                      .type = dy->dtype,
                                      .d_type = GSEL_F32};
  gsel_status status;
  if (by_library(user_data))
    status = gpu_multiply(c->stream, &product, say_of(c));
  else
    status = LAUNCH(c, linear_backward_weight, tiles(dw->dims[0], dw->dims[1]), P(dw->data), P(dy->data), P(x->data),
                    N(rows_of(x)), N(dw->dims[1]), N(dw->dims[0]), N(c->accumulate));
  if (status || c->n_params < 2) return status;
  return LAUNCH(c, sum_rows, columns(dw->dims[0]), P(c->d_params[1].data), P(dy->data), N(rows_of(x)), N(dw->dims[0]),
                N(c->accumulate));
}

/* ---- attention -------------------------------------------------------------------------------------------- */

static int64_t head_size(const void* user_data) {
  const struct gpt_sizes* sizes = user_data;
  return sizes->width / sizes->heads;
}

static gsel_status attention_run(const gsel_call* c, void* user_data) {
  const gsel_tensor* qkv = &c->inputs[0];
  const int64_t head = head_size(user_data), heads = width_of(qkv) / head, context = qkv->dims[1];
  return LAUNCH(c, attention_forward, rows(c->n_samples * heads * context), P(c->outputs[0].data), P(c->saved),
                P(qkv->data), N(c->n_samples), N(context), N(heads), N(head));
}

/* In this order: the last kernel overwrites what the first one leaves for the second. */
static gsel_status attention_back_input(const gsel_call* c, void* user_data) {
  const gsel_tensor *qkv = &c->inputs[0], *d_qkv = &c->d_inputs[0], *dy = &c->d_outputs[0];
  const int64_t head = head_size(user_data), heads = width_of(qkv) / head, context = qkv->dims[1];
  const int64_t blocks = rows(c->n_samples * heads * context);
  if (!d_qkv->data) return GSEL_OK;
  gsel_status status = LAUNCH(c, attention_backward_queries, blocks, P(d_qkv->data), P(dy->data), P(qkv->data),
                              P(c->saved), N(c->n_samples), N(context), N(heads), N(head));
  if (!status)
    status = LAUNCH(c, attention_backward_keys, blocks, P(d_qkv->data), P(dy->data), P(qkv->data), P(c->saved),
                    N(c->n_samples), N(context), N(heads), N(head));
  if (status) return status;
  return LAUNCH(c, attention_backward_values, blocks, P(d_qkv->data), P(dy->data), P(c->saved), N(c->n_samples),
                N(context), N(heads), N(head));
}

/* ---- gelu, residual --------------------------------------------------------------------------------------- */

static gsel_status gelu_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t n = c->inputs[0].n_elems;
  return LAUNCH(c, gelu_forward, elements(n), P(c->outputs[0].data), P(c->inputs[0].data), N(n));
}

static gsel_status gelu_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const int64_t n = c->inputs[0].n_elems;
  if (!c->d_inputs[0].data) return GSEL_OK;
  return LAUNCH(c, gelu_backward, elements(n), P(c->d_inputs[0].data), P(c->d_outputs[0].data), P(c->inputs[0].data),
                N(n));
}

static gsel_status residual_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* x = &c->inputs[0];
  return LAUNCH(c, residual_forward, elements(x->n_elems), P(c->outputs[0].data), P(x->data), P(c->inputs[1].data),
                P(c->params[0].data), N(rows_of(x)), N(width_of(x)));
}

static gsel_status residual_back_weight(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* dy = &c->d_outputs[0];
  return LAUNCH(c, sum_rows, columns(width_of(dy)), P(c->d_params[0].data), P(dy->data), N(rows_of(dy)),
                N(width_of(dy)), N(c->accumulate));
}

/* ---- loss ------------------------------------------------------------------------------------------------- */

static gsel_status loss_run(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &c->inputs[0];
  const int64_t n = rows_of(logits);
  const void *tops = c->reductions[0].data, *sums = c->reductions[1].data;
  if (c->phase == 0) return LAUNCH(c, cross_entropy_tops, rows(n), P(tops), P(logits->data), N(n), N(width_of(logits)));
  if (c->phase == 1)
    return LAUNCH(c, cross_entropy_sums, rows(n), P(sums), P(logits->data), P(tops), P(c->inputs[1].data), N(n),
                  N(begin_of(&c->input_shards[0], 2)), N(width_of(logits)));
  return LAUNCH(c, cross_entropy_loss, 1, P(c->outputs[0].data), P(c->outputs[1].data), P(c->saved), P(tops), P(sums),
                N(n));
}

static gsel_status loss_back_input(const gsel_call* c, void* user_data) {
  (void)user_data;
  const gsel_tensor* logits = &c->inputs[0];
  if (!c->d_inputs[0].data) return GSEL_OK;
  return LAUNCH(c, cross_entropy_backward, elements(logits->n_elems), P(c->d_inputs[0].data), P(logits->data),
                P(c->saved), P(c->inputs[1].data), N(rows_of(logits)), N(begin_of(&c->input_shards[0], 2)),
                N(width_of(logits)));
}

#include "layer_table.h"

const struct layer_kinds device_layers = {&token,       &position, &layernorm, &linear, &attention,
                                          &device_ring, &gelu,     &residual,  &loss};

const char* device_refusal(const struct gpt_sizes* sizes) {
  if (!gpu_image())
    return "this gpt was built without kernels for a GPU, since CMake found no nvcc; build it with a CUDA toolkit, or "
           "set [select] accelerator = \"cpu\"";
  if (sizes->attention != GPT_WHOLE && sizes->width / sizes->heads > GPT_HEAD)
    return "ring and fused attention have kernels for heads of up to 128 on a GPU; use --attention whole, more "
           "--heads, or [select] accelerator = \"cpu\"";
  return sizes->products == GPT_CUBLASLT ? gpu_products_refusal() : NULL;
}

/* ---- the text --------------------------------------------------------------------------------------------- */

gsel_status device_fill(struct device_text* copy, const struct text* text, int64_t shift,
                        const gsel_data_request* request) {
  const struct gpu_say say = {request->message, request->message_capacity};
  const size_t context = (size_t)text->context;
  gsel_status status = GSEL_OK;
  if (!copy->locked.memory) {
    status = gpu_lock(request->stream, text->n_bytes, &copy->locked, say);
    if (!status) memcpy(copy->locked.memory, text->bytes, text->n_bytes);
  }
  for (int64_t i = 0; i < request->n_samples && !status; ++i) {
    const uint8_t* from =
        (const uint8_t*)copy->locked.memory + (text_sample(text, request->sample_ids[i]) - text->bytes) + shift;
    status = gpu_copy(request->stream, (uint8_t*)request->dst.data + (size_t)i * context, from, context, say);
  }
  return status;
}

void device_text_free(struct device_text* copy) {
  gpu_unlock(&copy->locked);
}
