/* zero: data parallelism without redundant copies. Each rank keeps and steps one shard of every bucket's optimizer
 * state (stage 1), also of its gradients (stage 2), also of its parameters (stage 3). Gradients are reduce-scattered as
 * soon as backward has produced them; parameters are gathered after the step, or in stage 3 around each use. Source:
 * Rajbhandari et al., "ZeRO", SC 2020, sections 5 and 7; prefetching and resident small parameters as in DeepSpeed;
 * keep = "forward" is torch's SHARD_GRAD_OP. */
#include <inttypes.h>
#include <string.h>

#include "common/advice.h"
#include "common/rewrite.h"
#include "gathers.h"

#define PERSIST_ELEMS "100000"

static const gsel_option_v1 options[] = {
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "stage",
     "what is kept in shards: 1 optimizer state, 2 also gradients, 3 also parameters", 1, 3, "1"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "bucket_bytes", "bytes of gradients after which a bucket is closed",
     1, 1e15, "26214400"},
    {sizeof(gsel_option_v1), GSEL_OPTION_BOOLEAN, "overlap",
     "true: communicate while computing; false: wait for each collective", 0, 0, "true"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "prefetch_elems",
     "stage 3: elements gathered ahead of their use at most", 0, 1e15, "50000000"},
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "persist_elems",
     "stage 3: parameters with fewer elements stay whole on every rank", 0, 1e15, PERSIST_ELEMS},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "keep",
     "stage 3: gathered parameters are kept for one use (none), from forward to backward (forward), or for all "
     "micro-batches (step)",
     0, 0, "none"},
    {sizeof(gsel_option_v1), GSEL_OPTION_TEXT, "offload",
     "what lives in offload memory: none, state (of the optimizer), all (in stage 3: parameters too)", 0, 0, "none"},
};
static const char* const keeps[] = {"none", "forward", "step"}; /* in the order of enum keep */
static const char* const offloads[] = {"none", "state", "all"};
enum offload { OFFLOAD_NONE, OFFLOAD_STATE, OFFLOAD_ALL };

/* The first bucket is small, so that communication starts early. */
enum { FIRST_BUCKET_BYTES = 1 << 20 };

struct zero {
  struct rewrite w; /* first, so that callbacks of rewrite can be cast to zero */
  struct gathers gathers;
  int64_t persist_elems;
  int stage;
  int overlap;
  int32_t next;      /* next completion to reduce */
  int32_t under_way; /* completions [under_way, next) are being reduced */
};

static int is_resident(const gsel_param_info* param, void* user) {
  return param->n_elems < ((const struct zero*)user)->persist_elems;
}

static int is_large(const gsel_param_info* param, void* user) {
  return !is_resident(param, user);
}

static void make_all_buckets(struct zero* z) {
  struct rewrite* w = &z->w;
  const int64_t cap = w->api->option_integer(w->pass, "bucket_bytes");
  const int64_t first_cap = cap < FIRST_BUCKET_BYTES ? cap : FIRST_BUCKET_BYTES;
  const int offload = rewrite_word(w, "offload", offloads, 3);
  if (offload == OFFLOAD_ALL && z->stage < 3)
    rewrite_fail(w, GSEL_ERR_CONFIG,
                 "offload = \"%s\" needs stage = 3, where parameters are in shards; expected \"state\"",
                 offloads[offload]);
  gsel_bucket_options bucket_options = {.axis = w->axis, .owner = -1, .flags = GSEL_BUCKET_SHARD_STATE};
  if (z->stage > 1) bucket_options.flags |= GSEL_BUCKET_SHARD_GRADIENT;
  if (offload != OFFLOAD_NONE) bucket_options.flags |= GSEL_BUCKET_OFFLOAD_STATE;
  make_buckets(w, first_cap, cap, z->stage == 3 ? is_resident : NULL, z);
  describe_buckets(w, 0, bucket_options);
  if (z->stage < 3) return;

  const int32_t n_resident = w->n_buckets;
  bucket_options.flags |= GSEL_BUCKET_SHARD_PARAM;
  if (offload == OFFLOAD_ALL) bucket_options.flags |= GSEL_BUCKET_OFFLOAD_PARAM;
  make_buckets_by_readers(w, is_large, z);
  describe_buckets(w, n_resident, bucket_options);
}

static int is_reduced(const struct zero* z, int32_t bucket) {
  return z->w.buckets[bucket].under_way != GSEL_INSTR_REDUCE_SCATTER;
}

/* A bucket's gradients are still being reduced; the next micro-batch must not add to them before the WAIT. */
static void settle_before_backward(struct zero* z, const gsel_instr* instr) {
  if (z->stage < 2 || !writes_gradients(instr)) return;
  const gsel_layer_info* layer = &z->w.layers[instr->layer];
  for (int32_t p = 0; p < layer->n_params; ++p) {
    const int32_t b = z->w.bucket_of[layer->params[p]];
    if (b >= 0 && !is_reduced(z, b)) emit_settle(&z->w, b);
  }
}

/* Starts the reductions that complete at `position`. From stage 2 on, waits for earlier ones first, which frees their
 * whole gradients: at a time only gradients under reduction and those being written are whole. */
static void reduce(struct zero* z, int32_t position) {
  struct rewrite* w = &z->w;
  const int32_t first = z->next;
  while (z->next < w->n_completions && w->completions[z->next].position <= position) ++z->next;
  if (first == z->next) return;
  for (; z->stage > 1 && z->under_way < first; ++z->under_way)
    if (!is_reduced(z, w->completions[z->under_way].bucket)) emit_settle(w, w->completions[z->under_way].bucket);
  for (int32_t i = first; i < z->next; ++i) {
    emit_settle(w, w->completions[i].bucket); /* a gather for the next micro-batch */
    emit_collective(w, GSEL_INSTR_REDUCE_SCATTER, w->completions[i].bucket);
    if (!z->overlap) emit_settle(w, w->completions[i].bucket);
  }
}

static void step(struct rewrite* w, int32_t bucket) {
  emit_bucket(w, GSEL_INSTR_STEP, bucket);
  if (w->buckets[bucket].flags & GSEL_BUCKET_SHARD_PARAM) return;
  emit_collective(w, GSEL_INSTR_ALLGATHER, bucket);
  if (!((struct zero*)w)->overlap) emit_settle(w, bucket);
}

static void write_step(struct zero* z) {
  struct rewrite* w = &z->w;
  const int reduce_in_backward = z->overlap || z->stage > 1;
  for (int32_t i = 0; i < w->end_of_backward; ++i) {
    gathers_before(&z->gathers, i);
    settle_before_backward(z, &w->base[i]);
    emit(w, w->base[i]);
    gathers_after(&z->gathers, i);
    if (reduce_in_backward) reduce(z, i);
  }
  reduce(z, w->end_of_backward);
  write_end_of_step(w, step);
  for (int32_t b = 0; b < w->n_buckets; ++b) emit_settle(w, b);
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct zero z = {.stage = (int)api->option_integer(pass, "stage"),
                   .overlap = (int)api->option_integer(pass, "overlap"),
                   .persist_elems = api->option_integer(pass, "persist_elems")};
  struct rewrite* w = &z.w;
  rewrite_begin(w, "zero", host, api, pass, axis);
  make_all_buckets(&z);
  const enum keep keep = (enum keep)rewrite_word(w, "keep", keeps, 3);
  find_completions(w, z.stage > 1);
  gathers_make(&z.gathers, w, keep, z.overlap ? api->option_integer(pass, "prefetch_elems") : 0);
  if (!w->status) {
    broadcast_at_start(w);
    write_step(&z);
  }
  gathers_free(&z.gathers);
  return rewrite_end(w, err);
}

/* For stage 3. */
static gsel_status find_idle(const gsel_pass_api_v1* api, gsel_pass* pass) {
  const int64_t persist = api->option_integer(pass, "persist_elems");
  const int is_default = !strcmp(api->option_text(pass, "persist_elems"), PERSIST_ELEMS);
  int64_t largest = 0;
  int resident_here = 0;
  gsel_status status = GSEL_OK;
  for (int32_t p = 0; p < api->param_count(pass) && !status; ++p) {
    gsel_param_info param = {.struct_size = sizeof param};
    status = api->param(pass, p, &param);
    if (status || param.flags & GSEL_PARAM_FROZEN) continue;
    if (param.n_elems > largest) largest = param.n_elems;
    resident_here |= !param.absent && param.n_elems < persist;
  }
  if (!status && largest < persist)
    status = advise_idle(api, pass, "stage",
                         "is stage 2 here: persist_elems = %" PRId64
                         "%s keeps every parameter whole on each rank, the "
                         "largest has %" PRId64 " element%s; set persist_elems = %" PRId64 " or less, or stage = 2",
                         persist, is_default ? ", its default," : "", largest, largest == 1 ? "" : "s", largest);
  if (!status && !resident_here)
    status = advise_idle(api, pass, "bucket_bytes",
                         "changes nothing: in stage 3 the parameters that the same layers read make up a bucket; "
                         "prefetch_elems says how much is gathered ahead");
  return status;
}

static gsel_status advise(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                          int32_t topic, gsel_error** err) {
  const int64_t stage = api->option_integer(pass, "stage");
  (void)host, (void)err;
  if (topic == GSEL_ADVICE_MEMORY) return advise_zero(api, pass, axis, stage);
  return topic == GSEL_ADVICE_IDLE && stage == 3 ? find_idle(api, pass) : GSEL_OK;
}

GSEL_STRATEGY_DEFINE("zero", "0.1.0", .axes = 1u << GSEL_AXIS_DATA, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile, .advise = advise);
