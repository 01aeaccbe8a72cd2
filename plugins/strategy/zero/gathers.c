/* zero/gathers.c: see gathers.h. Gathers start in the order of first use, which is the same on all ranks. */
#include "gathers.h"

#include <stdlib.h>

/* A use of a bucket; uses with equal keys belong to one span. */
struct use {
  int32_t bucket;
  int32_t key;
  int32_t position;
};

static int by_bucket_and_key(const void* a, const void* b) {
  const struct use *x = a, *y = b;
  if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->position < y->position ? -1 : x->position > y->position;
}

static int by_bucket_and_first(const void* a, const void* b) {
  const struct span *x = a, *y = b;
  if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
  return x->first < y->first ? -1 : x->first > y->first;
}

static int by_first_use(const void* a, const void* b) {
  const struct span *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return x->bucket < y->bucket ? -1 : x->bucket > y->bucket;
}

/* Finds all uses; writes them to out unless it is NULL. Returns their number. */
static int32_t find_uses(const struct rewrite* w, enum keep keep, struct use* out) {
  int32_t n = 0;
  for (int32_t i = 0; i < w->end_of_backward; ++i) {
    const gsel_instr* instr = &w->base[i];
    if (instr->layer < 0) continue;
    const gsel_layer_info* layer = &w->layers[instr->layer];
    for (int32_t p = 0; p < layer->n_params; ++p) {
      const int32_t b = w->bucket_of[layer->params[p]];
      if (b < 0 || !(w->buckets[b].flags & GSEL_BUCKET_SHARD_PARAM) || !reads_param(w, instr, p)) continue;
      if (out) out[n] = (struct use){b, keep == KEEP_NONE ? i : keep == KEEP_FORWARD ? instr->microbatch : 0, i};
      ++n;
    }
  }
  return n;
}

/* Uses with equal keys become a span; spans of a bucket that overlap or are adjacent are merged. */
static int32_t join(struct use* uses, int32_t n_uses, struct span* spans) {
  qsort(uses, (size_t)n_uses, sizeof *uses, by_bucket_and_key);
  int32_t n = 0, n_joined = 0;
  for (int32_t u = 0; u < n_uses; ++u) {
    const int same = u > 0 && uses[u - 1].bucket == uses[u].bucket && uses[u - 1].key == uses[u].key;
    if (!same) spans[n++] = (struct span){uses[u].bucket, uses[u].position, 0};
    spans[n - 1].last = uses[u].position;
  }
  qsort(spans, (size_t)n, sizeof *spans, by_bucket_and_first);
  for (int32_t s = 0; s < n; ++s) {
    struct span* before = n_joined ? &spans[n_joined - 1] : NULL;
    if (before && before->bucket == spans[s].bucket && spans[s].first <= before->last + 1) {
      if (spans[s].last > before->last) before->last = spans[s].last;
    } else {
      spans[n_joined++] = spans[s];
    }
  }
  qsort(spans, (size_t)n_joined, sizeof *spans, by_first_use);
  return n_joined;
}

void gathers_make(struct gathers* g, struct rewrite* w, enum keep keep, int64_t prefetch_elems) {
  *g = (struct gathers){.w = w, .prefetch_elems = prefetch_elems};
  const int32_t n_uses = w->status ? 0 : find_uses(w, keep, NULL);
  struct use* uses = rewrite_alloc(w, n_uses, sizeof *uses);
  g->spans = rewrite_alloc(w, n_uses, sizeof *g->spans);
  g->open = rewrite_alloc(w, w->n_buckets, sizeof *g->open);
  if (!w->status) {
    find_uses(w, keep, uses);
    g->n_spans = join(uses, n_uses, g->spans);
    for (int32_t b = 0; b < w->n_buckets; ++b) g->open[b] = -1;
  }
  free(uses);
}

static void gather_next(struct gathers* g) {
  const struct span* span = &g->spans[g->next++];
  g->open[span->bucket] = span->last;
  g->ahead += g->w->buckets[span->bucket].elems;
  emit_collective(g->w, GSEL_INSTR_ALLGATHER, span->bucket);
}

/* A bucket must have been released, and its reduction must have ended, before it is gathered again. */
static int may_gather_ahead(const struct gathers* g) {
  if (g->next == g->n_spans) return 0;
  const int32_t b = g->spans[g->next].bucket;
  return g->open[b] < 0 && !g->w->buckets[b].under_way && g->ahead + g->w->buckets[b].elems <= g->prefetch_elems;
}

void gathers_before(struct gathers* g, int32_t position) {
  while (g->next < g->n_spans && g->spans[g->next].first == position) {
    emit_settle(g->w, g->spans[g->next].bucket);
    gather_next(g);
  }
  for (; g->used < g->next && g->spans[g->used].first == position; ++g->used) {
    const int32_t b = g->spans[g->used].bucket;
    emit_settle(g->w, b);
    g->ahead -= g->w->buckets[b].elems;
  }
  while (may_gather_ahead(g)) gather_next(g);
}

void gathers_after(struct gathers* g, int32_t position) {
  const struct rewrite* w = g->w;
  if (w->base[position].layer < 0) return;
  const gsel_layer_info* layer = &w->layers[w->base[position].layer];
  for (int32_t p = 0; p < layer->n_params; ++p) {
    const int32_t b = w->bucket_of[layer->params[p]];
    if (b < 0 || g->open[b] != position) continue;
    g->open[b] = -1;
    emit_bucket(g->w, GSEL_INSTR_RELEASE, b);
  }
}

void gathers_free(struct gathers* g) {
  free(g->spans);
  free(g->open);
}
