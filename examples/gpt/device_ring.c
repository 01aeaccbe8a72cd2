/* device_ring.c: the callbacks of ring.c as launches; nobody waits, so what a block says of itself, where it begins and
 * how many positions it has, is read by the kernels. */
#include "device_ring.h"

#include "cuda/launch.h"
#include "model.h"

#define LAUNCH(call, kernel, blocks, ...) \
  gpu_launch((call)->stream, typed_kernel(call, GPT_##kernel), blocks, GPU_ARGUMENTS(__VA_ARGS__), say_of(call))

_Static_assert((int)RING_HEAD == (int)GPT_BLOCK_HEAD, "kernels and callbacks differ in what is in front of a block");

/* What is here of a layer's positions; see ring.c. */
struct here {
  int64_t n, first, positions, width, heads, head;
  int in_blocks;
};

static struct here here_of(const gsel_call* c, const struct gpt_sizes* sizes) {
  const gsel_tensor* qkv = &c->inputs[0];
  const gsel_shard* shard = &c->input_shards[0];
  struct here h = {.n = c->n_samples, .positions = qkv->dims[1], .width = qkv->dims[3]};
  h.head = sizes->width / sizes->heads;
  h.heads = h.width / h.head;
  h.in_blocks = shard->dim == 1;
  h.first = h.in_blocks ? shard->begin : 0;
  return h;
}

static int64_t tiles(const struct here* h) {
  return h->n * h->heads * blocks_of(h->positions, GPT_OWN);
}

/* Positions that a block has room for, with so many widths of floats each. */
static int64_t room_of(const gsel_call* c, const struct here* h, int64_t widths) {
  return c->n_reductions ? (c->reductions[0].n_elems - RING_HEAD) / (h->n * widths * h->width) : 0;
}

static gsel_status fill(const gsel_call* c, const struct here* h, int64_t gradients) {
  return LAUNCH(c, block_fill, elements(RING_HEAD + h->n * h->positions * 4 * h->width), P(c->reductions[0].data),
                P(c->inputs[0].data), N(h->n), N(h->first), N(h->positions), N(h->width), N(gradients));
}

static gsel_status ring_run(const gsel_call* c, void* user_data) {
  const struct here h = here_of(c, user_data);
  const void* block = c->phase > 0 && h.in_blocks ? c->reductions[0].data : NULL;
  gsel_status status = GSEL_OK;
  if (c->phase > 0 && !h.in_blocks) return GSEL_OK;
  if (c->phase == 0 && h.in_blocks) status = fill(c, &h, 0);
  if (status) return status;
  return LAUNCH(c, attention_block_forward, tiles(&h), P(c->outputs[0].data), P(c->saved), P(c->inputs[0].data),
                P(block), N(room_of(c, &h, 2)), N(h.n), N(h.first), N(h.positions), N(h.heads), N(h.head),
                N(c->phase == 0));
}

static gsel_status ring_back_input(const gsel_call* c, void* user_data) {
  const struct here h = here_of(c, user_data);
  const void *qkv = c->inputs[0].data, *y = c->outputs[0].data, *dy = c->d_outputs[0].data,
             *d_qkv = c->d_inputs[0].data;
  const void* block = h.in_blocks ? c->reductions[0].data : NULL;
  gsel_status status = GSEL_OK;
  if (!d_qkv || (c->phase > 0 && !h.in_blocks)) return GSEL_OK;
  if (c->phase == c->shard_count && h.in_blocks)
    return LAUNCH(c, block_home, elements(h.n * h.positions * 2 * h.width), P(d_qkv), P(block), N(h.n), N(h.positions),
                  N(h.width));
  if (c->phase == 0 && h.in_blocks) status = fill(c, &h, 1);
  if (!status)
    status =
        LAUNCH(c, attention_block_backward_queries, tiles(&h), P(d_qkv), P(dy), P(y), P(c->saved), P(qkv), P(block),
               N(room_of(c, &h, 4)), N(h.n), N(h.first), N(h.positions), N(h.heads), N(h.head), N(c->phase == 0));
  if (status) return status;
  return LAUNCH(c, attention_block_backward_keys, tiles(&h), P(d_qkv), P(block), P(dy), P(y), P(c->saved), P(qkv),
                N(room_of(c, &h, 4)), N(h.n), N(h.first), N(h.positions), N(h.heads), N(h.head));
}

const struct layer_kind device_ring = {.forward = ring_run, .backward_input = ring_back_input};
