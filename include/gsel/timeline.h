/* gsel/timeline.h: draws the activity of ranks over time: steps of a trainer (docs/step.md), recordings of calls
 * (docs/trace.md) and simulated schedules (docs/pipeline.md), as SVG or for Perfetto and chrome://tracing. */
#ifndef GSEL_TIMELINE_H
#define GSEL_TIMELINE_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

typedef struct gsel_timeline gsel_timeline;

/* Makes an empty timeline.
 *   out  given to the caller, free with gsel_timeline_free. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_timeline_create(gsel_timeline **out, gsel_error **err);

/* Adds a document: the JSON of gsel_trainer_step_json, of a file that train.timeline wrote, of gsel_trace_json, or of
 * gsel_simulation_json. The library recognises the kind by the content. Steps of a pipeline's ranks and simulations are
 * drawn as charts: a row for each rank, a box for each action of a stage.
 *   json  borrowed for the call; at most 64 MiB
 *   name  name of the document in messages
 * Errors: GSEL_ERR_PARSE, with the place, for text that is no such document, is longer than 64 MiB, or brings the
 * timeline above 1,000,000 instructions and calls. The timeline is then unchanged. One thread at a time per timeline.
 * Since 0.1. */
GSEL_API gsel_status gsel_timeline_add(gsel_timeline *timeline, gsel_str json, gsel_str name, gsel_error **err);

#define GSEL_TIMELINE_SVG 1    /* a self-contained picture, readable on light and dark backgrounds */
#define GSEL_TIMELINE_CHROME 2 /* JSON of Chrome's trace events */

/* The timeline as text; the same text for the same documents. Ranks of one host use the same clock.
 *   out  borrowed until the next call with this timeline
 * Errors: GSEL_ERR_ARG for another format. One thread at a time per timeline. Since 0.1. */
GSEL_API gsel_status gsel_timeline_draw(gsel_timeline *timeline, int32_t format, gsel_str *out, gsel_error **err);

/* Releases; NULL is fine. Since 0.1. */
GSEL_API void gsel_timeline_free(gsel_timeline *timeline);

GSEL_EXTERN_C_END

#endif
