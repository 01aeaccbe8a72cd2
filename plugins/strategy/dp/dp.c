/* dp: data parallelism with a master, like torch's DataParallel, for comparison with it: only coordinate 0 of the data
 * axis has the data, the optimizer and the loss. In each step it broadcasts parameters and scatters inputs, gathers
 * what the loss reads, scatters its gradient, and sums the gradients of the parameters. Each micro-batch of the
 * original program becomes this rank's shard of a whole micro-batch on the master. */
#include <stdlib.h>

#include "common/advice.h"
#include "common/rewrite.h"

static const gsel_option_v1 options[] = {
    {sizeof(gsel_option_v1), GSEL_OPTION_INTEGER, "bucket_bytes", "bytes of gradients after which a bucket is closed",
     1, 1e15, "10485760"},
    {sizeof(gsel_option_v1), GSEL_OPTION_BOOLEAN, "overlap", "true: reduce while backward goes on; false: after it", 0,
     0, "true"},
};

enum { MASTER = 0 };

struct value {
  int needs_gradient;
  int is_input;
  int in_shards;   /* a layer works on its shards */
  int whole;       /* an input, or written by a layer on the master */
  int32_t arrived; /* last micro-batch that was gathered; -1: none */
  int32_t owed;    /* last micro-batch whose gradient must be scattered; -1: none */
};

struct dp {
  struct rewrite w; /* first, so that callbacks of rewrite can be cast to dp */
  struct value* values;
  int32_t n_values;
  int* on_master;         /* [n_layers] the loss layer and layers that read its results */
  int32_t n_microbatches; /* original micro-batches; shard j belongs to whole n_microbatches + j */
  int overlap;
};

static int is_master(const struct dp* d) {
  return d->w.rank == MASTER;
}

/* ---- which layers run on the master ---- */

static void read_values(struct dp* d) {
  struct rewrite* w = &d->w;
  d->n_values = w->api->value_count(w->pass);
  d->values = rewrite_alloc(w, d->n_values, sizeof *d->values);
  d->on_master = rewrite_alloc(w, w->n_layers, sizeof *d->on_master);
  for (int32_t v = 0; v < d->n_values && !w->status; ++v) {
    gsel_value_info info = {.struct_size = sizeof info};
    rewrite_fail(w, w->api->value(w->pass, v, &info), NULL, NULL);
    d->values[v] = (struct value){info.needs_gradient, info.producer < 0, 0, info.producer < 0, -1, -1};
  }
}

/* Only the loss has scalars, so all other values that the master needs have shards. */
static void find_master_layers(struct dp* d) {
  const struct rewrite* w = &d->w;
  for (int32_t l = 0; l < w->n_layers && !w->status; ++l) {
    const gsel_layer_info* layer = &w->layers[l];
    int master = (layer->flags & GSEL_LAYER_LOSS) != 0;
    for (int32_t i = 0; i < layer->n_inputs; ++i) {
      const struct value* value = &d->values[layer->inputs[i]];
      master |= value->whole && !value->is_input;
    }
    d->on_master[l] = master;
    for (int32_t i = 0; i < layer->n_outputs; ++i) d->values[layer->outputs[i]].whole = master;
    for (int32_t i = 0; i < layer->n_inputs; ++i) d->values[layer->inputs[i]].in_shards |= !master;
  }
}

/* ---- shards and whole micro-batches ---- */

/* The library's rule for uneven division: sizes differ by at most one, larger ones first. */
static int64_t shard_begin(int64_t n, int32_t shards, int32_t index) {
  const int64_t extra = n % shards;
  return index * (n / shards) + (index < extra ? index : extra);
}

static void refuse_weights(struct dp* d) {
  struct rewrite* w = &d->w;
  for (int32_t coordinate = 1; coordinate < w->ranks; ++coordinate)
    if (w->api->axis_weight(w->pass, w->axis, coordinate) != w->api->axis_weight(w->pass, w->axis, 0))
      rewrite_fail(w, GSEL_ERR_UNSUPPORTED,
                   "strategy.data.weights differ, and the master scatters even shards; expected \"ddp\" or "
                   "\"zero\" as strategy.data.plugin",
                   NULL);
}

/* Samples of the largest micro-batch on any rank, which is rank 0's first. If micro-batches have a configured size,
 * this rank's first one has it; if their number is configured, this rank's may be smaller. */
static int64_t largest_shard(const struct dp* d, int64_t batch) {
  gsel_microbatch_info first = {.struct_size = sizeof first};
  const int64_t of_rank_0 = shard_begin(shard_begin(batch, d->w.ranks, 1), d->n_microbatches, 1);
  if (d->n_microbatches == 1 || d->w.api->microbatch(d->w.pass, 0, &first)) return of_rank_0;
  return first.count > of_rank_0 ? first.count : of_rank_0;
}

static void make_microbatches(struct dp* d) {
  struct rewrite* w = &d->w;
  d->n_microbatches = w->api->microbatch_count(w->pass);
  const int64_t batch = w->api->batch(w->pass);
  const int64_t size = largest_shard(d, batch) * w->ranks;
  for (int pass = 0; pass < 2; ++pass) /* the shards, then the whole ones */
    for (int32_t j = 0; j < d->n_microbatches; ++j) {
      const int64_t first = j * size < batch ? j * size : batch, n = first + size < batch ? size : batch - first;
      gsel_microbatch_info whole = {sizeof whole, -1, first, n};
      const int64_t begin = shard_begin(n, w->ranks, w->rank), end = shard_begin(n, w->ranks, w->rank + 1);
      const gsel_microbatch_info shard = {sizeof shard, d->n_microbatches + j, first + begin, end - begin};
      rewrite_fail(w, w->api->set_microbatch(w->pass, pass ? d->n_microbatches + j : j, pass ? &whole : &shard), NULL,
                   NULL);
    }
}

/* ---- the step ---- */

static void emit_exchange(struct dp* d, gsel_instr_kind kind, int32_t value, int32_t microbatch, uint32_t flags) {
  emit(&d->w, (gsel_instr){kind, -1, value, microbatch, -1, d->w.axis, MASTER, flags});
}

static void emit_whole(struct dp* d, gsel_instr instr) {
  instr.microbatch += d->n_microbatches;
  if (is_master(d)) emit(&d->w, instr);
}

static void write_input(struct dp* d, gsel_instr instr) {
  emit_whole(d, instr);
  if (d->values[instr.value].in_shards) emit_exchange(d, GSEL_INSTR_SCATTER, instr.value, instr.microbatch, 0);
}

static void write_master_forward(struct dp* d, gsel_instr instr) {
  const gsel_layer_info* layer = &d->w.layers[instr.layer];
  for (int32_t i = 0; i < layer->n_inputs; ++i) {
    struct value* value = &d->values[layer->inputs[i]];
    if (value->whole || value->arrived == instr.microbatch) continue;
    emit_exchange(d, GSEL_INSTR_GATHER, layer->inputs[i], instr.microbatch, 0);
    value->arrived = instr.microbatch;
    if (value->needs_gradient) value->owed = instr.microbatch;
  }
  emit_whole(d, instr);
}

/* After the master's backward: scatters gradients to all ranks. */
static void scatter_gradients(struct dp* d, int32_t microbatch) {
  for (int32_t v = 0; v < d->n_values; ++v)
    if (d->values[v].owed == microbatch) {
      emit_exchange(d, GSEL_INSTR_SCATTER, v, microbatch, GSEL_INSTR_GRADIENT);
      d->values[v].owed = -1;
    }
}

static int is_backward(gsel_instr_kind kind) {
  return kind == GSEL_BACKWARD || kind == GSEL_BACKWARD_INPUT || kind == GSEL_BACKWARD_WEIGHT;
}

static void write_instr(struct dp* d, gsel_instr instr) {
  if (instr.kind == GSEL_INPUT) {
    write_input(d, instr);
  } else if (instr.layer >= 0 && d->on_master[instr.layer]) {
    if (instr.kind == GSEL_FORWARD)
      write_master_forward(d, instr);
    else
      emit_whole(d, instr);
  } else {
    if (is_backward(instr.kind)) scatter_gradients(d, instr.microbatch);
    emit(&d->w, instr);
  }
}

static void step(struct rewrite* w, int32_t bucket) {
  emit_bucket(w, w->rank == MASTER ? GSEL_INSTR_STEP : GSEL_INSTR_RELEASE, bucket);
}

static void write_step(struct dp* d) {
  struct rewrite* w = &d->w;
  for (int32_t b = 0; b < w->n_buckets; ++b) emit_rooted(w, GSEL_INSTR_BROADCAST, b);
  for (int32_t b = 0; b < w->n_buckets; ++b) emit_settle(w, b);
  int32_t next = 0;
  for (int32_t i = 0; i < w->end_of_backward; ++i) {
    write_instr(d, w->base[i]);
    for (; d->overlap && next < w->n_completions && w->completions[next].position == i; ++next)
      emit_rooted(w, GSEL_INSTR_REDUCE, w->completions[next].bucket);
  }
  for (; next < w->n_completions; ++next) emit_rooted(w, GSEL_INSTR_REDUCE, w->completions[next].bucket);
  write_end_of_step(w, step);
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  struct dp d = {.overlap = (int)api->option_integer(pass, "overlap")};
  struct rewrite* w = &d.w;
  const int64_t cap = api->option_integer(pass, "bucket_bytes");
  rewrite_begin(w, "dp", host, api, pass, axis);
  if (api->axis_size(pass, GSEL_AXIS_PIPELINE) > 1)
    rewrite_fail(w, GSEL_ERR_UNSUPPORTED,
                 "mesh.pipeline is greater than 1, and the master would need the whole model; expected \"ddp\" or "
                 "\"zero\" as strategy.data.plugin",
                 NULL);
  refuse_weights(&d);
  read_values(&d);
  make_buckets(w, cap, cap, NULL, NULL);
  describe_buckets(w, 0, (gsel_bucket_options){.axis = axis, .owner = MASTER});
  find_completions(w, 0);
  if (!w->status) {
    find_master_layers(&d);
    make_microbatches(&d);
    write_step(&d);
  }
  free(d.values);
  free(d.on_master);
  return rewrite_end(w, err);
}

static gsel_status advise(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                          int32_t topic, gsel_error** err) {
  (void)host, (void)err;
  return topic == GSEL_ADVICE_MEMORY ? advise_zero(api, pass, axis, 0) : GSEL_OK;
}

GSEL_STRATEGY_DEFINE("dp", "0.1.0", .axes = 1u << GSEL_AXIS_DATA, .options = options,
                     .n_options = sizeof options / sizeof *options, .compile = compile, .advise = advise);
