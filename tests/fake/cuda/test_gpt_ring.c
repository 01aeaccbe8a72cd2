/* Ring attention of the GPT on a device, phase by phase as the executor calls it: three ranks with parts of the
 * positions that are not equal, each with its part on the host and on the device. Blocks are passed on by hand between
 * the phases. Results, gradients and blocks are those of the host, within rounding. */
#include "fake/cuda/gpt_trial.h"
#include "layers.h"

enum { RANKS = 3, HEAD = 5, HEADS = 4, WIDTH = HEADS * HEAD, LARGEST = 15 };
static const int64_t parts[RANKS] = {15, 11, 11};
static const struct gpt_sizes sizes = {
    .layers = 1, .width = WIDTH, .heads = HEADS, .context = CONTEXT, .attention = GPT_RING};

/* What one rank has, in memory of the host or of the device. */
struct side {
  gsel_tensor qkv, y, dy, dqkv, block;
  void *saved, *arriving; /* arriving: the block of the rank before, in its buffer */
};
struct rank_trial {
  struct side of[2]; /* ON_HOST, ON_DEVICE */
  gsel_shard shard;
};

static gsel_tensor lent(gsel_tensor like, uint32_t seed, int on_gpu, gsel_dtype dtype) {
  void* host;
  like.dtype = on_gpu ? dtype : GSEL_F32;
  host = made(&like, seed, dtype == GSEL_BF16);
  like.data = on_gpu ? on_device(host, bytes_of(&like)) : host;
  if (on_gpu) free(host);
  return like;
}

static void open_side(struct side* s, int rank, int on_gpu, gsel_dtype dtype) {
  const int64_t here = parts[rank], room = RING_HEAD + SAMPLES * LARGEST * 4 * WIDTH;
  const gsel_tensor saved = lent(floats(SAMPLES, HEADS, here, 0), 9, on_gpu, GSEL_F32);
  s->qkv = lent(floats(SAMPLES, here, 3, WIDTH), (uint32_t)(100 + rank), on_gpu, dtype);
  s->y = lent(floats(SAMPLES, here, WIDTH, 0), 1, on_gpu, dtype);
  s->dy = lent(floats(SAMPLES, here, WIDTH, 0), (uint32_t)(200 + rank), on_gpu, dtype);
  s->dqkv = lent(floats(SAMPLES, here, 3, WIDTH), 2, on_gpu, dtype);
  s->block = lent(floats(room, 0, 0, 0), 3, on_gpu, GSEL_F32);
  s->arriving = lent(floats(room, 0, 0, 0), 4, on_gpu, GSEL_F32).data;
  s->saved = saved.data;
}

static void free_side(struct side* host) {
  void* const all[] = {host->qkv.data,   host->y.data,   host->dy.data, host->dqkv.data,
                       host->block.data, host->arriving, host->saved};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]);
}

static void call(struct rank_trial* r, int rank, int on_gpu, int phase, int backward) {
  struct side* s = &r->of[on_gpu];
  char message[256] = "";
  gsel_tensor block = s->block;
  block.n_elems = RING_HEAD + SAMPLES * LARGEST * (backward ? 4 : 2) * WIDTH;
  const gsel_call c = {.struct_size = sizeof c,
                       .n_samples = SAMPLES,
                       .inputs = &s->qkv,
                       .outputs = &s->y,
                       .d_outputs = &s->dy,
                       .d_inputs = &s->dqkv,
                       .reductions = &block,
                       .n_inputs = 1,
                       .n_outputs = 1,
                       .n_reductions = 1,
                       .saved = s->saved,
                       .phase = phase,
                       .shard_index = rank,
                       .shard_count = RANKS,
                       .input_shards = &r->shard,
                       .stream = on_gpu ? g.stream : NULL,
                       .message = message,
                       .message_capacity = sizeof message};
  const struct layer_kind* kind = on_gpu ? device_layers.ring : gpt_layers.ring;
  const gsel_status status = (backward ? kind->backward_input : kind->forward)(&c, (void*)&sizes);
  if (status) fail_msg("%s", message);
}

/* Every block to the next rank. */
static void shift(struct rank_trial* ranks) {
  for (int on_gpu = 0; on_gpu < 2; ++on_gpu) {
    for (int r = 0; r < RANKS; ++r) {
      struct side *from = &ranks[r].of[on_gpu], *to = &ranks[(r + 1) % RANKS].of[on_gpu];
      const size_t bytes = bytes_of(&from->block);
      on_gpu ? copy(&g, to->arriving, from->block.data, bytes) : (void)memcpy(to->arriving, from->block.data, bytes);
    }
    for (int r = 0; r < RANKS; ++r) {
      struct side* s = &ranks[r].of[on_gpu];
      void* old = s->block.data;
      s->block.data = s->arriving;
      s->arriving = old;
    }
  }
}

static void compare_sides(const struct rank_trial* r, const char* of, const gsel_tensor* host,
                          const gsel_tensor* device, double slack) {
  (void)r;
  compare_memory("ring attention", of, host->data, GSEL_F32, device->data, host->n_elems, device->dtype, slack);
}

static void try_ring(gsel_dtype dtype) {
  static struct rank_trial ranks[RANKS];
  const double slack = dtype == GSEL_BF16 ? 2e-2 : 0; /* rounded once for each block */
  int64_t first = 0;
  for (int r = 0; r < RANKS; first += parts[r++]) {
    ranks[r].shard = (gsel_shard){.dim = 1, .begin = first};
    for (int on_gpu = 0; on_gpu < 2; ++on_gpu) open_side(&ranks[r].of[on_gpu], r, on_gpu, dtype);
  }
  for (int phase = 0; phase < RANKS; ++phase) {
    for (int r = 0; r < RANKS; ++r)
      for (int on_gpu = 0; on_gpu < 2; ++on_gpu) call(&ranks[r], r, on_gpu, phase, 0);
    shift(ranks);
  }
  for (int r = 0; r < RANKS; ++r) compare_sides(&ranks[r], "result", &ranks[r].of[0].y, &ranks[r].of[1].y, slack);
  for (int phase = 0; phase <= RANKS; ++phase) {
    for (int r = 0; r < RANKS; ++r)
      for (int on_gpu = 0; on_gpu < 2; ++on_gpu) call(&ranks[r], r, on_gpu, phase, 1);
    if (phase < RANKS) shift(ranks);
  }
  for (int r = 0; r < RANKS; ++r)
    compare_sides(&ranks[r], "gradient", &ranks[r].of[0].dqkv, &ranks[r].of[1].dqkv, slack);
  for (int r = 0; r < RANKS; ++r) free_side(&ranks[r].of[0]);
  no_violations();
}

static void ranks_with_parts_of_the_positions_give_what_they_give_on_the_host(void** state) {
  (void)state;
  try_ring(GSEL_F32);
}

static void blocks_are_f32_where_values_are_bf16(void** state) {
  (void)state;
  try_ring(GSEL_BF16);
}

int main(void) {
  load_doubles("fake_libcuda.so");
  g = open_gpu(0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_with_parts_of_the_positions_give_what_they_give_on_the_host),
      cmocka_unit_test(blocks_are_f32_where_values_are_bf16),
  };
  return cmocka_run_group_tests_name("gpt_ring", tests, NULL, NULL);
}
