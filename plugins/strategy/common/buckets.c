/* common/buckets.c: groups parameters into buckets, and finds where backward completes their gradients. The order of
 * layers is known, so the order of gradients need not be observed or agreed on. */
#include <stdlib.h>

#include "rewrite.h"

/* A parameter for a bucket. */
struct item {
  int32_t param;
  int32_t first_layer; /* first layer that uses it, whose backward completes its gradient */
  uint64_t readers;    /* hash of the layers that use it; 0: not grouped by readers */
  int32_t dtype;
  int32_t tie;
};

/* The order in which backward completes gradients: later layers first. Tied parameters come last, in the same order on
 * every pipeline rank, because layers are those of the whole model. */
static int by_backward_order(const void* a, const void* b) {
  const struct item *x = a, *y = b;
  if (x->tie != y->tie) return x->tie < y->tie ? -1 : 1;
  if (x->first_layer != y->first_layer) return x->first_layer > y->first_layer ? -1 : 1;
  if (x->readers != y->readers) return x->readers < y->readers ? -1 : 1;
  if (x->readers && x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  return x->param < y->param ? -1 : x->param > y->param;
}

/* FNV-1a of the layers' ids. Parameters with equal hashes of different sets would share a bucket, which is harmless. */
static void hash_readers(const struct rewrite* w, struct item* items) {
  for (int32_t p = 0; p < w->n_params; ++p) items[p].readers = UINT64_C(14695981039346656037);
  for (int32_t l = 0; l < w->n_layers; ++l)
    for (int32_t i = 0; i < w->layers[l].n_params; ++i) {
      uint64_t* hash = &items[w->layers[l].params[i]].readers;
      *hash = (*hash ^ (uint32_t)(l + 1)) * UINT64_C(1099511628211);
    }
}

/* Fills items[param id] for all parameters, then keeps the wanted ones in backward order. */
static int32_t find_items(struct rewrite* w, struct item* items, int by_readers, wanted_fn wanted, void* user) {
  for (int32_t p = 0; p < w->n_params; ++p) items[p] = (struct item){p, 0, 0, w->params[p].dtype, w->params[p].tie};
  for (int32_t l = w->n_layers - 1; l >= 0; --l)
    for (int32_t i = 0; i < w->layers[l].n_params; ++i) items[w->layers[l].params[i]].first_layer = l;
  if (by_readers) hash_readers(w, items);
  int32_t n = 0;
  for (int32_t p = 0; p < w->n_params; ++p) {
    if (w->params[p].absent || w->params[p].flags & GSEL_PARAM_FROZEN) continue;
    if (!wanted || wanted(&w->params[p], user)) items[n++] = items[p];
  }
  qsort(items, (size_t)n, sizeof *items, by_backward_order);
  return n;
}

static void add_bucket(struct rewrite* w, const struct item* items, int32_t n, int32_t* params) {
  struct bucket* bucket = &w->buckets[w->n_buckets];
  *bucket = (struct bucket){0};
  for (int32_t i = 0; i < n; ++i) {
    params[i] = items[i].param;
    w->bucket_of[params[i]] = w->n_buckets;
    bucket->elems += w->params[params[i]].n_elems;
  }
  bucket->n_params = n;
  bucket->id = w->api->add_bucket(w->pass, params, n);
  if (bucket->id < 0)
    rewrite_fail(w, bucket->id, "parameter \"%s\" could not be put in a bucket", w->params[params[0]].name);
  ++w->n_buckets;
}

static void group(struct rewrite* w, int by_readers, int64_t first_cap, int64_t cap, wanted_fn wanted, void* user) {
  struct item* items = rewrite_alloc(w, w->n_params, sizeof *items);
  int32_t* params = rewrite_alloc(w, w->n_params, sizeof *params);
  const int32_t n_items = w->status ? 0 : find_items(w, items, by_readers, wanted, user);
  for (int32_t first = 0; first < n_items && !w->status;) {
    const int64_t limit = first == 0 && items[0].tie < 0 ? first_cap : cap;
    int64_t bytes = 0;
    int32_t n = 0;
    for (; first + n < n_items && bytes < limit; ++n) {
      const struct item* item = &items[first + n];
      const struct item* head = &items[first];
      if (item->dtype != head->dtype || item->readers != head->readers || item->tie != head->tie) break;
      bytes += w->params[item->param].n_elems * (int64_t)sizeof(float);
    }
    add_bucket(w, items + first, n, params);
    first += n;
  }
  free(items);
  free(params);
}

void make_buckets(struct rewrite* w, int64_t first_cap, int64_t cap, wanted_fn wanted, void* user) {
  group(w, 0, first_cap, cap, wanted, user);
}

void make_buckets_by_readers(struct rewrite* w, wanted_fn wanted, void* user) {
  group(w, 1, INT64_MAX, INT64_MAX, wanted, user);
}

void describe_buckets(struct rewrite* w, int32_t from, gsel_bucket_options options) {
  options.struct_size = sizeof options;
  for (int32_t b = from; b < w->n_buckets && !w->status; ++b) {
    w->buckets[b].flags = options.flags;
    rewrite_fail(w, w->api->describe_bucket(w->pass, w->buckets[b].id, &options), NULL, NULL);
  }
}

static int by_position(const void* a, const void* b) {
  const struct completion *x = a, *y = b;
  if (x->position != y->position) return x->position < y->position ? -1 : 1;
  return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* Scans back to front: the first backward found in the step or micro-batch completes the bucket's gradients. */
static int32_t scan(const struct rewrite* w, int per_microbatch, int32_t* last_seen, struct completion* out) {
  int32_t n = 0;
  for (int32_t b = 0; b < w->n_buckets; ++b) last_seen[b] = -1;
  for (int32_t i = w->end_of_backward - 1; i >= 0; --i) {
    if (!writes_gradients(&w->base[i])) continue;
    const gsel_layer_info* layer = &w->layers[w->base[i].layer];
    for (int32_t p = 0; p < layer->n_params; ++p) {
      const int32_t b = w->bucket_of[layer->params[p]];
      const int32_t period = per_microbatch ? w->base[i].microbatch : 0;
      if (b < 0 || last_seen[b] == period) continue;
      last_seen[b] = period;
      if (out) out[n] = (struct completion){i, b};
      ++n;
    }
  }
  for (int32_t b = 0; b < w->n_buckets; ++b)
    if (last_seen[b] < 0) {
      if (out) out[n] = (struct completion){w->end_of_backward, b};
      ++n;
    }
  return n;
}

void find_completions(struct rewrite* w, int per_microbatch) {
  int32_t* last_seen = rewrite_alloc(w, w->n_buckets, sizeof *last_seen);
  if (!w->status) {
    w->n_completions = scan(w, per_microbatch, last_seen, NULL);
    w->completions = rewrite_alloc(w, w->n_completions, sizeof *w->completions);
  }
  if (!w->status) {
    scan(w, per_microbatch, last_seen, w->completions);
    qsort(w->completions, (size_t)w->n_completions, sizeof *w->completions, by_position);
  }
  free(last_seen);
}
