/* zero/gathers.h: when the whole parameters of a sharded bucket are there: gathered ahead of their first use as far as
 * a window of elements allows, awaited right before it, released right after the last one. */
#ifndef GSEL_STRATEGY_ZERO_GATHERS_H
#define GSEL_STRATEGY_ZERO_GATHERS_H

#include "common/rewrite.h"

/* How long gathered parameters are kept: for one use (or uses that follow each other at once), from the first to the
 * last use in a micro-batch, in a step. */
enum keep { KEEP_NONE, KEEP_FORWARD, KEEP_STEP };

/* A stretch of the base over which a bucket's parameters are whole: positions of its first and last use. */
struct span {
  int32_t bucket;
  int32_t first, last;
};

struct gathers {
  struct rewrite* w;
  int64_t window;     /* elements gathered and not yet used */
  struct span* spans; /* [n_spans] in order of first use */
  int32_t n_spans;
  int32_t next;  /* span to be gathered next */
  int32_t used;  /* spans before it have been used */
  int64_t ahead; /* elements of spans used .. next - 1 */
  int32_t* open; /* [n_buckets] last use of the span that is gathered, -1: none */
};

/* Finds the spans of buckets that shard their parameters. gathers_free must follow. */
void gathers_make(struct gathers* g, struct rewrite* w, enum keep keep, int64_t window);
/* To be called right before and right after the base's instruction at `position` is written. */
void gathers_before(struct gathers* g, int32_t position);
void gathers_after(struct gathers* g, int32_t position);
void gathers_free(struct gathers* g);

#endif
