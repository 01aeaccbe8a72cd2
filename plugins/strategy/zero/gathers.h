/* zero/gathers.h: when the parameters of a sharded bucket are whole: gathered ahead of their first use within a window
 * of elements, awaited right before it, released right after the last use. */
#ifndef GSEL_STRATEGY_ZERO_GATHERS_H
#define GSEL_STRATEGY_ZERO_GATHERS_H

#include "common/rewrite.h"

/* How long gathered parameters are kept: for one use (or adjacent uses), from the first to the last use in a
 * micro-batch, or for the step. */
enum keep { KEEP_NONE, KEEP_FORWARD, KEEP_STEP };

/* A range of the base step in which a bucket's parameters are whole, from its first to its last use. */
struct span {
  int32_t bucket;
  int32_t first, last;
};

struct gathers {
  struct rewrite* w;
  int64_t prefetch_elems; /* most elements gathered and not yet used */
  struct span* spans;     /* [n_spans] in order of first use */
  int32_t n_spans;
  int32_t next;  /* next span to gather */
  int32_t used;  /* number of used spans */
  int64_t ahead; /* elements of spans [used, next) */
  int32_t* open; /* [n_buckets] last use of the gathered span, or -1 */
};

/* Finds the spans of buckets that shard their parameters. Call gathers_free afterwards. */
void gathers_make(struct gathers* g, struct rewrite* w, enum keep keep, int64_t prefetch_elems);
/* Call right before and right after writing the base's instruction at `position`. */
void gathers_before(struct gathers* g, int32_t position);
void gathers_after(struct gathers* g, int32_t position);
void gathers_free(struct gathers* g);

#endif
