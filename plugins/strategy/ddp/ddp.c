/* ddp: distributed data parallel. Every rank holds the whole model and computes its shard of the batch. Gradients are
 * summed over the data axis in buckets, each as soon as backward has produced its last gradient, while backward goes
 * on. The parameters of a bucket are contiguous, so a bucket is reduced in place. Source: Li et al., "PyTorch
 * Distributed", VLDB 2020, section 4; bucket caps as in torch (1 MiB first, then 25 MiB); compression like torch's
 * communication hooks. */
#include <inttypes.h>

#include "common/advice.h"
#include "common/rewrite.h"

static const gsel_option_v1 options[] = {
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "bucket_bytes", "bytes of gradients after which a bucket is closed",
     1, 1e15, "26214400"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "first_bucket_bytes",
     "bytes after which the first bucket is closed; small, so that communication starts early", 1, 1e15, "1048576"},
    {sizeof(gsel_option_v1), GSEL_OPTION_BOOLEAN, "overlap", "true: reduce while backward goes on; false: after it", 0,
     0, "true"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "compress",
     "what is sent of a gradient: none (f32), f16, bf16, low_rank", 0, 0, "none"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "compress_rank", "columns of a low_rank factor", 1, 65536, "4"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "compress_start",
     "first step, from 0, that compresses; -1: 10 for low_rank, else 0", -1, 1e15, "-1"},
};
static const char* const compressions[] = {"none", "f16", "bf16", "low_rank"}; /* in the order of GSEL_COMPRESS_* */

/* A low-rank approximation is poor for the gradients of the first steps. */
enum { LOW_RANK_START = 10 };

static gsel_bucket_options description(struct rewrite* w) {
  gsel_bucket_options bucket_options = {.axis = w->axis, .owner = -1};
  bucket_options.compression = rewrite_word(w, "compress", compressions, 4);
  if (bucket_options.compression == GSEL_COMPRESS_NONE) return bucket_options;
  const int64_t start = w->api->option_integer(w->pass, "compress_start");
  const int low_rank = bucket_options.compression == GSEL_COMPRESS_LOW_RANK;
  bucket_options.compression_start = start >= 0 ? start : low_rank ? LOW_RANK_START : 0;
  if (low_rank) bucket_options.compression_rank = (int32_t)w->api->option_integer(w->pass, "compress_rank");
  return bucket_options;
}

static void step(struct rewrite* w, int32_t bucket) {
  emit_bucket(w, GSEL_INSTR_STEP, bucket);
}

static void write_step(struct rewrite* w) {
  const int overlap = (int)w->api->option_integer(w->pass, "overlap");
  int32_t next = 0;
  for (int32_t i = 0; i < w->end_of_backward; ++i) {
    emit(w, w->base[i]);
    for (; overlap && next < w->n_completions && w->completions[next].position == i; ++next)
      emit_collective(w, GSEL_INSTR_ALLREDUCE, w->completions[next].bucket);
  }
  for (; next < w->n_completions; ++next) emit_collective(w, GSEL_INSTR_ALLREDUCE, w->completions[next].bucket);
  write_end_of_step(w, step);
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct rewrite w;
  rewrite_begin(&w, "ddp", host, api, pass, axis);
  make_buckets(&w, api->option_integer(pass, "first_bucket_bytes"), api->option_integer(pass, "bucket_bytes"), NULL,
               NULL);
  describe_buckets(&w, 0, description(&w));
  find_completions(&w, 0);
  if (!w.status) {
    broadcast_at_start(&w);
    write_step(&w);
  }
  return rewrite_end(&w, err);
}

static int32_t count_buckets(struct rewrite* w, int64_t first_cap, int64_t cap) {
  w->api->clear_buckets(w->pass);
  w->n_buckets = 0;
  make_buckets(w, first_cap, cap, NULL, NULL);
  return w->n_buckets;
}

/* The first bucket has its own cap, and may hold what several buckets were configured for. */
static gsel_status find_idle(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                             gsel_error** err) {
  const int64_t cap = api->option_integer(pass, "bucket_bytes"),
                first_cap = api->option_integer(pass, "first_bucket_bytes");
  struct rewrite w;
  rewrite_begin(&w, "ddp", host, api, pass, axis);
  const int takes_all = count_buckets(&w, first_cap, cap) == 1 && count_buckets(&w, cap, cap) > 1;
  const gsel_status status = rewrite_end(&w, err);
  if (status || !takes_all) return status;
  return advise_idle(api, pass, "bucket_bytes",
                     "changes nothing: the first bucket is closed by first_bucket_bytes and has all gradients; set "
                     "first_bucket_bytes = %" PRId64,
                     cap);
}

static gsel_status advise(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                          int32_t topic, gsel_error** err) {
  if (topic == GSEL_ADVICE_MEMORY) return advise_zero(api, pass, axis, 0);
  return topic == GSEL_ADVICE_IDLE ? find_idle(host, api, pass, axis, err) : GSEL_OK;
}

GSEL_STRATEGY_DEFINE("ddp", "0.2.0", .axes = 1u << GSEL_AXIS_DATA, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile, .advise = advise);
