/* ddp: distributed data parallel. Every rank holds the whole model and computes its part of the batch; gradients are
 * summed over the data axis in buckets, each as soon as backward has produced its last gradient, while backward goes
 * on. Parameters of a bucket are stored side by side, so a bucket is reduced where its gradients already are.
 * The order of a layer list is known, so buckets need no observing and no agreeing on arrival order.
 * Source: Li et al., "PyTorch Distributed", VLDB 2020, section 4; bucket caps as in torch (1 MiB first, then 25 MiB).
 */
#include <gsel/plugin.h>
#include <stdlib.h>

static const gsel_option_v1 options[] = {
    {"bucket_bytes", "bytes of gradients after which a bucket is closed", GSEL_OPTION_INTEGER, 0, 1, 1e15, "26214400"},
    {"first_bucket_bytes", "bytes after which the first bucket is closed; small, so that communication starts early",
     GSEL_OPTION_INTEGER, 0, 1, 1e15, "1048576"},
    {"overlap", "true: reduce while backward goes on; false: after it", GSEL_OPTION_BOOLEAN, 0, 0, 0, "true"},
};

/* A trainable parameter, the first layer that uses it, and where this rank's program completes its gradient: -1 when
 * it never does, as on a rank without samples. Buckets follow from the layers, which all ranks share. */
struct item {
  int32_t param;
  int32_t first_layer;
  int32_t position;
  int64_t bytes;
};

struct bucket {
  int32_t id;
  int32_t position; /* of the instruction that completes its last gradient */
};

struct work {
  const gsel_pass_api_v1* api;
  gsel_pass* pass;
  gsel_axis axis;
  struct item* items;
  struct bucket* buckets;
  int32_t n_items, n_buckets;
  gsel_status status; /* the first failure; later steps do nothing */
};

static void keep(struct work* w, gsel_status status) {
  if (!w->status) w->status = status;
}

/* The order in which backward completes gradients: later layers first. */
static int by_backward_order(const void* a, const void* b) {
  const struct item *x = a, *y = b;
  if (x->first_layer != y->first_layer) return x->first_layer > y->first_layer ? -1 : 1;
  return x->param < y->param ? -1 : x->param > y->param;
}

static gsel_layer_info layer_of(struct work* w, int32_t id) {
  gsel_layer_info layer = {.struct_size = sizeof layer};
  keep(w, w->api->layer(w->pass, id, &layer));
  return layer;
}

/* items[param id] for all parameters, then the frozen ones are dropped. */
static void find_items(struct work* w) {
  const int32_t n_params = w->api->param_count(w->pass);
  for (int32_t p = 0; p < n_params; ++p) w->items[p] = (struct item){p, 0, -1, 0};

  for (int32_t l = w->api->layer_count(w->pass) - 1; l >= 0; --l) {
    const gsel_layer_info layer = layer_of(w, l);
    for (int32_t p = 0; p < layer.n_params; ++p) w->items[layer.params[p]].first_layer = l;
  }
  const int32_t length = w->api->length(w->pass);
  for (int32_t i = 0; i < length; ++i) {
    gsel_instr instr;
    keep(w, w->api->get(w->pass, i, &instr));
    if (instr.kind != GSEL_INSTR_BACKWARD && instr.kind != GSEL_INSTR_BACKWARD_WEIGHT) continue;
    const gsel_layer_info layer = layer_of(w, instr.layer);
    for (int32_t p = 0; p < layer.n_params; ++p) w->items[layer.params[p]].position = i;
  }

  for (int32_t p = 0; p < n_params; ++p) {
    gsel_param_info param = {.struct_size = sizeof param};
    keep(w, w->api->param(w->pass, p, &param));
    if (param.flags & GSEL_PARAM_FROZEN) continue;
    w->items[w->n_items] = w->items[p];
    w->items[w->n_items++].bytes = param.n_elems * (int64_t)sizeof(float);
  }
  qsort(w->items, (size_t)w->n_items, sizeof *w->items, by_backward_order);
}

/* Greedy: a bucket is closed when it has reached its cap, so it may exceed the cap by part of one parameter. */
static void make_buckets(struct work* w, int32_t* params) {
  int64_t cap = w->api->option_integer(w->pass, "first_bucket_bytes");
  w->api->clear_buckets(w->pass);
  for (int32_t first = 0; first < w->n_items;) {
    int32_t n = 0;
    for (int64_t bytes = 0; first + n < w->n_items && bytes < cap; ++n) {
      params[n] = w->items[first + n].param;
      bytes += w->items[first + n].bytes;
    }
    const int32_t id = w->api->add_bucket(w->pass, params, n);
    if (id < 0) {
      keep(w, id);
      return;
    }
    int32_t complete = -1;
    for (int32_t i = first; i < first + n; ++i)
      if (w->items[i].position > complete) complete = w->items[i].position;
    w->buckets[w->n_buckets++] = (struct bucket){id, complete};
    first += n;
    cap = w->api->option_integer(w->pass, "bucket_bytes");
  }
}

static gsel_instr bucket_instr(const struct work* w, gsel_instr_kind kind, int32_t bucket) {
  gsel_instr instr = {kind, -1, -1, -1, bucket, -1, -1, 0};
  if (kind == GSEL_INSTR_REDUCE || kind == GSEL_INSTR_BROADCAST) instr.axis = w->axis;
  if (kind == GSEL_INSTR_BROADCAST) instr.peer = 0;
  return instr;
}

static void insert(struct work* w, int32_t position, gsel_instr_kind kind, int32_t bucket) {
  const gsel_instr instr = bucket_instr(w, kind, bucket);
  keep(w, w->api->insert(w->pass, position, &instr));
}

/* Position of the first instruction of a kind, or of the end. */
static int32_t find(const struct work* w, gsel_instr_kind kind) {
  const int32_t length = w->api->length(w->pass);
  gsel_instr instr;
  for (int32_t i = 0; i < length; ++i)
    if (!w->api->get(w->pass, i, &instr) && instr.kind == kind) return i;
  return length;
}

/* Before clipping all buckets must be in; without it each is stepped as soon as it is. */
static void wait_and_step(struct work* w) {
  for (int32_t at = find(w, GSEL_INSTR_STEP); at < w->api->length(w->pass); at = find(w, GSEL_INSTR_STEP))
    keep(w, w->api->remove(w->pass, at));
  const int32_t norm = find(w, GSEL_INSTR_NORM);
  if (norm < w->api->length(w->pass)) {
    for (int32_t b = 0; b < w->n_buckets; ++b) insert(w, norm + b, GSEL_INSTR_WAIT, w->buckets[b].id);
    for (int32_t b = 0; b < w->n_buckets; ++b) insert(w, w->api->length(w->pass), GSEL_INSTR_STEP, w->buckets[b].id);
    return;
  }
  for (int32_t b = 0; b < w->n_buckets; ++b) {
    insert(w, w->api->length(w->pass), GSEL_INSTR_WAIT, w->buckets[b].id);
    insert(w, w->api->length(w->pass), GSEL_INSTR_STEP, w->buckets[b].id);
  }
}

/* Later positions first, so that earlier ones stay valid. */
static void insert_reductions(struct work* w) {
  const int32_t overlap = (int32_t)w->api->option_integer(w->pass, "overlap");
  const int32_t after_backward = find(w, GSEL_INSTR_LOSS_REDUCE);
  for (int32_t b = w->n_buckets - 1; b >= 0; --b)
    insert(w, overlap ? w->buckets[b].position + 1 : after_backward, GSEL_INSTR_REDUCE, w->buckets[b].id);
}

static void broadcast_at_start(struct work* w) {
  for (int pass = 0; pass < 2; ++pass)
    for (int32_t b = 0; b < w->n_buckets; ++b) {
      const gsel_instr instr = bucket_instr(w, pass ? GSEL_INSTR_WAIT : GSEL_INSTR_BROADCAST, w->buckets[b].id);
      keep(w, w->api->setup(w->pass, &instr));
    }
}

static gsel_status compile(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass, gsel_axis axis,
                           gsel_error** err) {
  const size_t n_params = (size_t)api->param_count(pass);
  struct work w = {.api = api, .pass = pass, .axis = axis};
  w.items = calloc(n_params + 1, sizeof *w.items);
  w.buckets = calloc(n_params + 1, sizeof *w.buckets);
  int32_t* params = calloc(n_params + 1, sizeof *params);
  if (!w.items || !w.buckets || !params) {
    w.status = GSEL_ERR_NOMEM;
  } else {
    find_items(&w);
    make_buckets(&w, params);
    broadcast_at_start(&w);
    wait_and_step(&w);
    insert_reductions(&w);
  }
  free(w.items);
  free(w.buckets);
  free(params);
  if (w.status) *err = host->error_new(w.status, "ddp: the program could not be rewritten");
  return w.status;
}

static const gsel_strategy_v1 strategy = {
    .struct_size = sizeof strategy,
    .axes = 1u << GSEL_AXIS_DATA,
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .compile = compile,
};

GSEL_PLUGIN_DEFINE = {
    .struct_size = sizeof(struct gsel_plugin_v1),
    .abi_major = GSEL_PLUGIN_ABI_MAJOR,
    .abi_minor = GSEL_PLUGIN_ABI_MINOR,
    .kind = GSEL_PLUGIN_STRATEGY,
    .name = "ddp",
    .version = "0.1.0",
    .build = "gcc " __VERSION__,
    .table = &strategy,
};
