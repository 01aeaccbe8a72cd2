/* fake/cuda/gpt_trial.h: one layer of examples/gpt on the host and on a device, with the same numbers: forward, and
 * both halves of backward. What a backward does not read is not lent. In bf16 the device's layer is beside the host's
 * in f32, which reads the same rounded numbers. */
#ifndef GSEL_TESTS_GPT_TRIAL_H
#define GSEL_TESTS_GPT_TRIAL_H

#include <math.h>
#include <stdlib.h>

#include "device_layers.h"
#include "fake/cuda/program.h"

#define TOLERANCE 2e-5        /* of 1 + the magnitude */
#define BF16_ROUNDING 0.00393 /* of the magnitude, of a number that is rounded once */

enum { SAMPLES = 3, CONTEXT = 37, LOSSES = 100, PART = 21, FIRST = 9 }; /* PART: positions or words from FIRST on */
enum { PARAMS, INPUTS, OUTPUTS, D_OUTPUTS, D_INPUTS, D_PARAMS, REDUCTIONS, GROUPS, EACH = 2 };

struct layer_trial {
  const char* name;
  const struct layer_kind *host, *device;
  gsel_tensor params[EACH], inputs[EACH], outputs[EACH], reductions[EACH];
  int64_t saved; /* floats */
  int64_t param_first, input_first, output_first;
  double bf16_slack;             /* of gradients of inputs that come from another rounded number */
  const struct gpt_sizes* sizes; /* NULL: those of the test */
};

/* What a call lends, in memory of the host or of the device. */
struct lent {
  gsel_call call;
  gsel_tensor of[GROUPS][EACH];
  gsel_shard shards[3][EACH];
  float* saved;
  char message[256];
};

static gpu g;
static const struct gpt_sizes heads_of_5 = {.layers = 1, .width = 30, .heads = 6, .context = CONTEXT};

static size_t bytes_of(const gsel_tensor* t) {
  return (size_t)t->n_elems * gsel_dtype_bytes(t->dtype);
}
static int count(const gsel_tensor* tensors) {
  return (tensors[0].n_elems > 0) + (tensors[1].n_elems > 0);
}

static float rounded_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static double number_at(const void* memory, gsel_dtype dtype, int64_t i) {
  if (dtype == GSEL_F64) return ((const double*)memory)[i];
  if (dtype != GSEL_BF16) return (double)((const float*)memory)[i];
  const uint32_t bits = (uint32_t)((const uint16_t*)memory)[i] << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return (double)x;
}

/* The same in each run, of numbers that bf16 holds where `rounds`; words are bytes below 64. */
static void* made(const gsel_tensor* t, uint32_t seed, int rounds) {
  void* memory = malloc(bytes_of(t));
  assert_non_null(memory);
  for (int64_t i = 0; i < t->n_elems; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float all = (float)(seed >> 8) / 8388608.0f - 1.0f, x = rounds ? rounded_to_bf16(all) : all;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (t->dtype == GSEL_BF16)
      ((uint16_t*)memory)[i] = (uint16_t)(bits >> 16);
    else if (t->dtype == GSEL_U8)
      ((uint8_t*)memory)[i] = (uint8_t)(seed >> 26);
    else if (t->dtype == GSEL_F64)
      ((double*)memory)[i] = (double)x;
    else
      ((float*)memory)[i] = x;
  }
  return memory;
}

static void* on_device(const void* host, size_t bytes) {
  void* memory = (void*)alloc(&g, bytes); /* never freed: a process has few of them */
  copy(&g, memory, host, bytes);
  finish(&g);
  return memory;
}

enum { ON_HOST, ON_DEVICE, ON_DEVICE_IN_BF16 };
/* rounds: numbers that bf16 holds, for both sides. */
static void lend(struct lent* l, const struct layer_trial* t, int where, int rounds) {
  const int device = where != ON_HOST;
  const gsel_tensor* const like[GROUPS] = {t->params, t->inputs, t->outputs,   t->outputs,
                                           t->inputs, t->params, t->reductions};
  const gsel_tensor saved = {.n_elems = t->saved, .dtype = GSEL_F32};
  memset(l, 0, sizeof *l);
  for (int group = 0; group < GROUPS; ++group)
    for (int i = 0; i < count(like[group]); ++i) {
      gsel_tensor* lent = &l->of[group][i];
      *lent = like[group][i];
      if (where == ON_DEVICE_IN_BF16 && lent->dtype == GSEL_F32 && group != D_PARAMS && group != REDUCTIONS)
        lent->dtype = GSEL_BF16;
      if (group == D_INPUTS && lent->dtype == GSEL_U8) continue; /* has no gradient */
      void* host = made(lent, (uint32_t)(7 * group + i), rounds);
      lent->data = device ? on_device(host, bytes_of(lent)) : host;
      if (device) free(host);
    }
  if (t->saved) {
    void* host = made(&saved, 99, 0);
    l->saved = device ? on_device(host, bytes_of(&saved)) : host;
    if (device) free(host);
  }
  for (int kind = 0; kind < 3; ++kind)
    for (int i = 0; i < EACH; ++i) l->shards[kind][i].dim = -1;
  if (t->param_first) l->shards[0][0] = (gsel_shard){.dim = 0, .begin = t->param_first};
  if (t->input_first) l->shards[1][0] = (gsel_shard){.dim = 2, .begin = t->input_first};
  if (t->output_first) l->shards[2][0] = (gsel_shard){.dim = 1, .begin = t->output_first};
  l->call = (gsel_call){.struct_size = sizeof(gsel_call),
                        .n_samples = SAMPLES,
                        .params = l->of[PARAMS],
                        .inputs = l->of[INPUTS],
                        .outputs = l->of[OUTPUTS],
                        .d_outputs = l->of[D_OUTPUTS],
                        .d_inputs = l->of[D_INPUTS],
                        .d_params = l->of[D_PARAMS],
                        .reductions = l->of[REDUCTIONS],
                        .n_params = count(t->params),
                        .n_inputs = count(t->inputs),
                        .n_outputs = count(t->outputs),
                        .n_reductions = count(t->reductions),
                        .saved = l->saved,
                        .param_shards = l->shards[0],
                        .input_shards = l->shards[1],
                        .output_shards = l->shards[2],
                        .stream = device ? g.stream : NULL,
                        .message = l->message,
                        .message_capacity = sizeof l->message};
}

/* What was lent on the host. */
static inline void free_lent(struct lent* host) {
  for (int group = 0; group < GROUPS; ++group)
    for (int i = 0; i < EACH; ++i) free(host->of[group][i].data);
  free(host->saved);
}

/* Both gave the same, within rounding. */
static void compare_memory(const char* what, const char* of, const void* host, gsel_dtype host_type, const void* device,
                           int64_t n, gsel_dtype dtype, double slack) {
  const gsel_tensor like = {.n_elems = n, .dtype = dtype};
  void* got = malloc(bytes_of(&like));
  copy(&g, got, device, bytes_of(&like));
  finish(&g);
  for (int64_t i = 0; i < n; ++i) {
    const double a = number_at(got, dtype, i), e = number_at(host, host_type, i);
    const double within = dtype == GSEL_BF16 ? BF16_ROUNDING * fabs(e) + slack + TOLERANCE : TOLERANCE * (1 + fabs(e));
    if (!(fabs(a - e) <= within)) fail_msg("%s, %s [%lld]: expected %.9g, got %.9g", what, of, (long long)i, e, a);
  }
  free(got);
}
static void compare(const struct layer_trial* t, const struct lent* host, const struct lent* device, int group,
                    const char* of) {
  for (int i = 0; i < EACH; ++i) {
    const gsel_tensor *h = &host->of[group][i], *d = &device->of[group][i];
    if (h->data && h->dtype != GSEL_U8)
      compare_memory(t->name, of, h->data, h->dtype, d->data, h->n_elems, d->dtype,
                     group == D_INPUTS ? t->bf16_slack : 0);
  }
}

static void run_both(const struct gpt_sizes* sizes, gsel_layer_fn host_fn, gsel_layer_fn device_fn, struct lent* host,
                     struct lent* device) {
  assert_int_equal(host_fn(&host->call, (void*)sizes), GSEL_OK);
  if (device_fn(&device->call, (void*)sizes) != GSEL_OK) fail_msg("%s", device->message);
}

/* Without what this half of backward leaves unread. */
static void hide(const struct lent* from, struct lent* to, uint64_t unread, uint64_t unread_params) {
  *to = *from;
  for (int i = 0; i < EACH; ++i) {
    if (unread & GSEL_UNREAD_INPUT(i)) to->of[INPUTS][i].data = NULL;
    if (unread & GSEL_UNREAD_OUTPUT(i)) to->of[OUTPUTS][i].data = NULL;
    if (unread_params >> i & 1) to->of[PARAMS][i].data = NULL;
  }
  to->call.params = to->of[PARAMS];
  to->call.inputs = to->of[INPUTS];
  to->call.outputs = to->of[OUTPUTS];
}

static inline void try_layer(const struct layer_trial* t, const struct gpt_sizes* otherwise, int where) {
  static struct lent host, device, host_half, device_half;
  const struct gpt_sizes* sizes = t->sizes ? t->sizes : otherwise;
  print_message("  %s%s\n", t->name, where == ON_DEVICE_IN_BF16 ? ", bf16" : "");
  lend(&host, t, ON_HOST, where == ON_DEVICE_IN_BF16);
  lend(&device, t, where, where == ON_DEVICE_IN_BF16);
  for (int phase = 0; phase <= count(t->reductions); ++phase) {
    host.call.phase = device.call.phase = phase;
    run_both(sizes, t->host->forward, t->device->forward, &host, &device);
    compare(t, &host, &device, REDUCTIONS, "what ranks reduce");
  }
  host.call.phase = device.call.phase = 0;
  compare(t, &host, &device, OUTPUTS, "output");
  if (t->saved) compare_memory(t->name, "what is kept", host.saved, GSEL_F32, device.saved, t->saved, GSEL_F32, 0);
  if (t->host->backward_input) {
    hide(&host, &host_half, t->device->input_unread, t->device->unread_params);
    hide(&device, &device_half, t->device->input_unread, t->device->unread_params);
    run_both(sizes, t->host->backward_input, t->device->backward_input, &host_half, &device_half);
    compare(t, &host, &device, D_INPUTS, "gradient of an input");
  }
  for (int accumulate = 0; accumulate < 2 && t->host->backward_weight; ++accumulate) {
    hide(&host, &host_half, t->device->weight_unread, 3);
    hide(&device, &device_half, t->device->weight_unread, 3);
    host_half.call.accumulate = device_half.call.accumulate = accumulate;
    run_both(sizes, t->host->backward_weight, t->device->backward_weight, &host_half, &device_half);
    compare(t, &host, &device, D_PARAMS, accumulate ? "gradient that is added to" : "gradient of a parameter");
  }
  assert_int_equal(t->device->flags, t->host->flags);
  assert_true(t->device->input_unread == t->host->input_unread && t->device->weight_unread == t->host->weight_unread &&
              t->device->unread_params == t->host->unread_params);
  free_lent(&host);
  no_violations();
}

/* ---- shapes ---- */

static gsel_tensor floats(int64_t a, int64_t b, int64_t c, int64_t d) {
  gsel_tensor t = {.n_elems = a, .dims = {a, b, c, d}, .n_dims = 1, .dtype = GSEL_F32};
  for (int i = 1; i < 4 && t.dims[i] > 0; ++i) {
    t.n_elems *= t.dims[i];
    ++t.n_dims;
  }
  return t;
}
static inline gsel_tensor words(int64_t positions) {
  gsel_tensor t = floats(SAMPLES, positions, 0, 0);
  t.dtype = GSEL_U8;
  return t;
}
static inline gsel_tensor number(void) {
  gsel_tensor t = floats(1, 0, 0, 0);
  t.dtype = GSEL_F64;
  return t;
}
#define BOTH(kind) .host = gpt_layers.kind, .device = device_layers.kind

#endif
