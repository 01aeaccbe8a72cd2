/* support/pipe_model.h: a computation for pipelines without a trainer: layers that keep their own parameters, in
 * numbers that are all small integers, so that no order of summation can matter. It has the cases of values that cross
 * cuts: values read by the next layer, values that skip over several stages, an integer that is not differentiable,
 * inputs of the first and of the last layer; backwards in one and in halves, and bytes kept for them.
 *
 *   embed   h0, kind <- tokens                          h0[d] = token + w * (d + 1); kind = token & 1
 *   mix.i   hi <- h(i-1) [, h(i-3)] [, kind]            hi = w * (h(i-1) + kind) + h(i-3)
 *   end     the loss, sum of |h - label|; or, without it, writes h + label to where the test finds it */
#ifndef GSEL_TESTS_PIPE_MODEL_H
#define GSEL_TESTS_PIPE_MODEL_H

#include "support/ranks.h"

enum { PIPE_WIDTH = 3, PIPE_MOST_LAYERS = 12, PIPE_MOST_SAMPLES = 128 };

struct pipe_model;
typedef struct pipe_layer {
  struct pipe_model* m;
  int i;
} pipe_layer;

typedef struct pipe_model {
  int layers; /* embed and end with them, at least 2 */
  int without_loss;
  int wide_layer;     /* its value has one element more: a rank that disagrees; 0: none */
  int declares;       /* a parameter, which pipelines refuse */
  unsigned unflagged; /* bit i: layer i does not say that it keeps parameters */
  int fail_layer;     /* fails in this layer's ... */
  int fail_backward;
  int fail_at_call; /* ... call of this number, from 1; 0 never */
  int ends_at;      /* data ends before this sample; 0 never */
  void (*at_failure)(void);
  void (*watch)(const struct pipe_model* m, int layer); /* sees every call, after it was counted */
  int rank;
  pipe_layer layer[PIPE_MOST_LAYERS];
  /* The outcome. */
  double dw[PIPE_MOST_LAYERS];
  int forwards[PIPE_MOST_LAYERS], backwards[PIPE_MOST_LAYERS]; /* calls; halves count as a half each, doubled */
  int inputs[2];                                               /* fills of tokens and labels */
  float out[PIPE_MOST_SAMPLES][PIPE_WIDTH];
} pipe_model;

/* ---- by hand ---- */

typedef struct pipe_result {
  double dw[PIPE_MOST_LAYERS];
  double loss;
  float out[PIPE_MOST_SAMPLES][PIPE_WIDTH];
} pipe_result;

/* Samples [first, end). */
pipe_result pipe_by_hand(int layers, int64_t first, int64_t end);

/* ---- callbacks ---- */

gsel_status pipe_mix(const gsel_call* c, void* user);
gsel_status pipe_data(const gsel_data_request* r, void* user);

/* ---- description ---- */

enum { PIPE_TOKENS, PIPE_LABELS, PIPE_KIND, PIPE_H0 };

gsel_status pipe_add_value(gsel_model* model, const char* name, int64_t elems, gsel_dtype dtype, uint32_t flags,
                           gsel_error** err);

/* m: user data of the layers, kept as long as the model. */
gsel_status pipe_describe(gsel_model* model, pipe_model* m, gsel_error** err);

/* ---- everything one rank holds ---- */

typedef struct pipe_session {
  pipe_model m;
  gsel_comm* comm;
  gsel_model* model;
  gsel_pipeline* pipeline;
} pipe_session;

/* m->rank is set. pipe_close frees it, also after a failure. */
gsel_status pipe_open(const rank_run* run, const pipe_model* m, const gsel_pipeline_options* options, pipe_session* s,
                      gsel_error** err);
void pipe_close(pipe_session* s);

#endif
