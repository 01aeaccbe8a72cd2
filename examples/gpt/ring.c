/* ring.c: attention where each rank has some of the positions (Liu et al., Ring Attention, arXiv 2310.01889). A rank
 * keeps its queries; keys and values are shifted round the ring of the context axis in blocks, of which each rank takes
 * the part in the result that they have. In backward the gradients of a block travel with it, and it comes home in the
 * end.
 *
 * Positions lie in the order of the text. A block behind a rank's queries has no part in them, so the first rank has
 * one block to look at and the last one all: with n ranks the axis works (n+1)/2n of the time. Dealing positions out in
 * a zig-zag would even that out; it is not done here.
 *
 * A block says which one it is: its head has the first position and how many follow. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels.h"
#include "layers.h"
#include "model.h"

/* What is here of a layer's positions. */
struct here {
  int64_t n, first, positions; /* samples; positions [first, first + positions) of each */
  int64_t width, heads, head;  /* width = heads * head */
  int in_blocks;               /* others have other positions */
};

static struct here here_of(const gsel_call* call, const struct gpt_sizes* sizes) {
  const gsel_tensor* qkv = &call->inputs[0];
  const gsel_shard* shard = &call->input_shards[0];
  struct here h = {.n = call->n_samples, .positions = qkv->dims[1], .width = qkv->dims[3]};
  h.head = sizes->width / sizes->heads;
  h.heads = h.width / h.head;
  h.in_blocks = shard->dim == 1;
  h.first = h.in_blocks ? shard->begin : 0;
  return h;
}

/* Keys, and values a width behind them, in the rank's own qkv, or in a block: [n][count][2][width]. */
static struct attention_keys own_keys(const struct here* h, const float* qkv) {
  return (struct attention_keys){qkv + h->width, h->first, h->positions, 3 * h->width};
}
static struct attention_keys block_keys(const struct here* h, const float* block) {
  return (struct attention_keys){block + RING_HEAD, (int64_t)block[0], (int64_t)block[1], 2 * h->width};
}
/* Their gradients lie behind them in the same way. */
static float* block_gradients(const struct here* h, float* block) {
  return block + RING_HEAD + h->n * (int64_t)block[1] * 2 * h->width;
}

static struct attention_queries queries_of(const struct here* h, const float* qkv) {
  return (struct attention_queries){qkv, h->first, h->positions, h->n, h->heads, h->head};
}

/* Puts the rank's own keys and values into a block. */
static void fill_block(const struct here* h, float* block, const float* qkv) {
  const size_t bytes = (size_t)(2 * h->width) * sizeof *block;
  memset(block, 0, RING_HEAD * sizeof *block);
  block[0] = (float)h->first;
  block[1] = (float)h->positions;
  for (int64_t r = 0; r < h->n * h->positions; ++r)
    memcpy(block + RING_HEAD + r * 2 * h->width, qkv + (3 * r + 1) * h->width, bytes);
}

static gsel_status no_memory(const gsel_call* call) {
  snprintf(call->message, call->message_capacity, "no memory for the scores of one attention head");
  return GSEL_ERR_NOMEM;
}

/* In call k the block has come from k coordinates away; call 0 has the rank's own. Where all positions are here there
 * is nothing to wait for, and what may be shifted round the ring is not read. */
static gsel_status ring_run(const gsel_call* call, void* user_data) {
  const struct here h = here_of(call, user_data);
  const float* qkv = call->inputs[0].data;
  const struct attention_queries q = queries_of(&h, qkv);
  float* block = call->n_reductions ? call->reductions[0].data : NULL;
  if (call->phase > 0 && !h.in_blocks) return GSEL_OK;
  if (call->phase == 0 && h.in_blocks) fill_block(&h, block, qkv);
  const struct attention_keys keys = call->phase == 0 ? own_keys(&h, qkv) : block_keys(&h, block);
  if (attention_block_forward(call->outputs[0].data, call->saved, &q, &keys, call->phase == 0)) return no_memory(call);
  return GSEL_OK;
}

/* dqkv gets the gradients of queries block by block, and those of the rank's own keys and values when they are home. */
static gsel_status ring_back_input(const gsel_call* call, void* user_data) {
  const struct here h = here_of(call, user_data);
  const float *qkv = call->inputs[0].data, *y = call->outputs[0].data, *dy = call->d_outputs[0].data;
  const struct attention_queries q = queries_of(&h, qkv);
  float *dqkv = call->d_inputs[0].data, *block = call->n_reductions ? call->reductions[0].data : NULL;
  if (!dqkv || (call->phase > 0 && !h.in_blocks)) return GSEL_OK;
  if (call->phase == 0) memset(dqkv, 0, (size_t)call->d_inputs[0].n_elems * sizeof *dqkv);
  if (!h.in_blocks) {
    const struct attention_keys keys = own_keys(&h, qkv);
    return attention_block_backward(dqkv, dqkv + h.width, dy, y, call->saved, &q, &keys) ? no_memory(call) : GSEL_OK;
  }
  if (call->phase == 0) {
    fill_block(&h, block, qkv);
    memset(block_gradients(&h, block), 0, (size_t)(h.n * h.positions * 2 * h.width) * sizeof *block);
  }
  if (call->phase == call->shard_count) { /* home */
    const size_t bytes = (size_t)(2 * h.width) * sizeof *block;
    const float* d = block_gradients(&h, block);
    for (int64_t r = 0; r < h.n * h.positions; ++r) memcpy(dqkv + (3 * r + 1) * h.width, d + r * 2 * h.width, bytes);
    return GSEL_OK;
  }
  const struct attention_keys keys = block_keys(&h, block);
  if (attention_block_backward(dqkv, block_gradients(&h, block), dy, y, call->saved, &q, &keys)) return no_memory(call);
  return GSEL_OK;
}

const struct layer_kind ring_layer = {.forward = ring_run, .backward_input = ring_back_input};
