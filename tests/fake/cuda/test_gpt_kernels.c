/* The GPT's layers on a device: each gives what the same layer gives on the host, within rounding, forward and in both
 * halves of backward; also where a part of a dimension is here. What backward does not read is not lent. The sizes are
 * no multiples of what a block of threads takes. */
#include <math.h>
#include <stdlib.h>

#include "device_layers.h"
#include "fake/cuda/program.h"

#define TOLERANCE 2e-5 /* of 1 + the magnitude */

enum { SAMPLES = 3, CONTEXT = 37, LOSSES = 100, PART = 21, FIRST = 9 }; /* PART: positions or words from FIRST on */
enum { PARAMS, INPUTS, OUTPUTS, D_OUTPUTS, D_INPUTS, D_PARAMS, REDUCTIONS, GROUPS, EACH = 2 };

struct layer_trial {
  const char* name;
  const struct layer_kind *host, *device;
  gsel_tensor params[EACH], inputs[EACH], outputs[EACH], reductions[EACH];
  int64_t saved; /* floats */
  int64_t param_first, input_first, output_first;
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
static const struct gpt_sizes sizes = {1, 30, 6, CONTEXT, 0}; /* heads of 5 */

static size_t bytes_of(const gsel_tensor* t) {
  return (size_t)t->n_elems * gsel_dtype_bytes(t->dtype);
}
static int count(const gsel_tensor* tensors) {
  return (tensors[0].n_elems > 0) + (tensors[1].n_elems > 0);
}

/* The same in each run; words are bytes below 64. */
static void* made(const gsel_tensor* t, uint32_t seed) {
  void* memory = malloc(bytes_of(t));
  assert_non_null(memory);
  for (int64_t i = 0; i < t->n_elems; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float x = (float)(seed >> 8) / 8388608.0f - 1.0f;
    if (t->dtype == GSEL_U8)
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

static void lend(struct lent* l, const struct layer_trial* t, int device) {
  const gsel_tensor* const like[GROUPS] = {t->params, t->inputs, t->outputs,   t->outputs,
                                           t->inputs, t->params, t->reductions};
  const gsel_tensor saved = {.n_elems = t->saved, .dtype = GSEL_F32};
  memset(l, 0, sizeof *l);
  for (int group = 0; group < GROUPS; ++group)
    for (int i = 0; i < count(like[group]); ++i) {
      gsel_tensor* lent = &l->of[group][i];
      *lent = like[group][i];
      if (group == D_INPUTS && lent->dtype == GSEL_U8) continue; /* has no gradient */
      void* host = made(lent, (uint32_t)(7 * group + i));
      lent->data = device ? on_device(host, bytes_of(lent)) : host;
      if (device) free(host);
    }
  if (t->saved) l->saved = made(&saved, 99);
  if (t->saved && device) l->saved = on_device(l->saved, (size_t)t->saved * sizeof(float));
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

/* Both gave the same, within rounding. */
static void compare_memory(const char* what, const char* of, const void* host, const void* device, int64_t n,
                           gsel_dtype dtype) {
  const gsel_tensor like = {.n_elems = n, .dtype = dtype};
  void* got = malloc(bytes_of(&like));
  copy(&g, got, device, bytes_of(&like));
  finish(&g);
  for (int64_t i = 0; i < n; ++i) {
    const double a = dtype == GSEL_F64 ? ((const double*)got)[i] : (double)((const float*)got)[i];
    const double e = dtype == GSEL_F64 ? ((const double*)host)[i] : (double)((const float*)host)[i];
    if (!(fabs(a - e) <= TOLERANCE * (1 + fabs(e))))
      fail_msg("%s, %s [%lld]: expected %.9g, got %.9g", what, of, (long long)i, e, a);
  }
  free(got);
}
static void compare(const struct layer_trial* t, const struct lent* host, const struct lent* device, int group,
                    const char* of) {
  for (int i = 0; i < EACH; ++i) {
    const gsel_tensor* h = &host->of[group][i];
    if (h->data && h->dtype != GSEL_U8)
      compare_memory(t->name, of, h->data, device->of[group][i].data, h->n_elems, h->dtype);
  }
}

static void run_both(gsel_layer_fn host_fn, gsel_layer_fn device_fn, struct lent* host, struct lent* device) {
  assert_int_equal(host_fn(&host->call, (void*)&sizes), GSEL_OK);
  if (device_fn(&device->call, (void*)&sizes) != GSEL_OK) fail_msg("%s", device->message);
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

static void try_layer(const struct layer_trial* t) {
  static struct lent host, device, host_half, device_half;
  print_message("  %s\n", t->name);
  lend(&host, t, 0);
  lend(&device, t, 1);
  for (int phase = 0; phase <= count(t->reductions); ++phase) {
    host.call.phase = device.call.phase = phase;
    run_both(t->host->forward, t->device->forward, &host, &device);
    compare(t, &host, &device, REDUCTIONS, "what ranks reduce");
  }
  host.call.phase = device.call.phase = 0;
  compare(t, &host, &device, OUTPUTS, "output");
  if (t->saved) compare_memory(t->name, "what is kept", host.saved, device.saved, t->saved, GSEL_F32);
  if (t->host->backward_input) {
    hide(&host, &host_half, t->device->input_unread, t->device->unread_params);
    hide(&device, &device_half, t->device->input_unread, t->device->unread_params);
    run_both(t->host->backward_input, t->device->backward_input, &host_half, &device_half);
    compare(t, &host, &device, D_INPUTS, "gradient of an input");
  }
  for (int accumulate = 0; accumulate < 2 && t->host->backward_weight; ++accumulate) {
    hide(&host, &host_half, t->device->weight_unread, 3);
    hide(&device, &device_half, t->device->weight_unread, 3);
    host_half.call.accumulate = device_half.call.accumulate = accumulate;
    run_both(t->host->backward_weight, t->device->backward_weight, &host_half, &device_half);
    compare(t, &host, &device, D_PARAMS, accumulate ? "gradient that is added to" : "gradient of a parameter");
  }
  assert_int_equal(t->device->flags, t->host->flags);
  assert_true(t->device->input_unread == t->host->input_unread && t->device->weight_unread == t->host->weight_unread &&
              t->device->unread_params == t->host->unread_params);
  no_violations();
}

/* ---- the layers ---- */

static gsel_tensor floats(int64_t a, int64_t b, int64_t c, int64_t d) {
  gsel_tensor t = {.n_elems = a, .dims = {a, b, c, d}, .n_dims = 1, .dtype = GSEL_F32};
  for (int i = 1; i < 4 && t.dims[i] > 0; ++i) {
    t.n_elems *= t.dims[i];
    ++t.n_dims;
  }
  return t;
}
static gsel_tensor words(int64_t positions) {
  gsel_tensor t = floats(SAMPLES, positions, 0, 0);
  t.dtype = GSEL_U8;
  return t;
}
static gsel_tensor number(void) {
  gsel_tensor t = floats(1, 0, 0, 0);
  t.dtype = GSEL_F64;
  return t;
}
#define BOTH(kind) .host = gpt_layers.kind, .device = device_layers.kind

static void layers_give_what_they_give_on_the_host(void** state) {
  (void)state;
  const struct layer_trial all[] = {
      {"tokens",
       BOTH(token),
       {floats(64, 19, 0, 0)},
       {words(CONTEXT)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"tokens, a part of the vocabulary",
       BOTH(token),
       {floats(PART, 19, 0, 0)},
       {words(CONTEXT)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {{0}},
       0,
       FIRST,
       0,
       0},
      {"positions",
       BOTH(position),
       {floats(CONTEXT, 11, 0, 0)},
       {floats(SAMPLES, CONTEXT, 11, 0)},
       {floats(SAMPLES, CONTEXT, 11, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"positions, a part of them",
       BOTH(position),
       {floats(CONTEXT, 11, 0, 0)},
       {floats(SAMPLES, PART, 11, 0)},
       {floats(SAMPLES, PART, 11, 0)},
       {{0}},
       0,
       0,
       0,
       FIRST},
      {"layer norm",
       BOTH(layernorm),
       {floats(45, 0, 0, 0), floats(45, 0, 0, 0)},
       {floats(SAMPLES, CONTEXT, 45, 0)},
       {floats(SAMPLES, CONTEXT, 45, 0)},
       {{0}},
       2 * SAMPLES * CONTEXT,
       0,
       0,
       0},
      {"linear",
       BOTH(linear),
       {floats(70, 19, 0, 0), floats(70, 0, 0, 0)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {floats(SAMPLES, CONTEXT, 70, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"linear, without a bias",
       BOTH(linear),
       {floats(19, 70, 0, 0)},
       {floats(SAMPLES, CONTEXT, 70, 0)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"attention",
       BOTH(attention),
       {{0}},
       {floats(SAMPLES, CONTEXT, 3, 30)},
       {floats(SAMPLES, CONTEXT, 30, 0)},
       {{0}},
       SAMPLES * 6 * CONTEXT * CONTEXT,
       0,
       0,
       0},
      {"attention, two of six heads",
       BOTH(attention),
       {{0}},
       {floats(SAMPLES, CONTEXT, 3, 10)},
       {floats(SAMPLES, CONTEXT, 10, 0)},
       {{0}},
       SAMPLES * 2 * CONTEXT * CONTEXT,
       0,
       0,
       0},
      {"gelu",
       BOTH(gelu),
       {{0}},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"residual",
       BOTH(residual),
       {floats(19, 0, 0, 0)},
       {floats(SAMPLES, CONTEXT, 19, 0), floats(SAMPLES, CONTEXT, 19, 0)},
       {floats(SAMPLES, CONTEXT, 19, 0)},
       {{0}},
       0,
       0,
       0,
       0},
      {"loss",
       BOTH(loss),
       {{0}},
       {floats(SAMPLES, LOSSES, 64, 0), words(LOSSES)},
       {number(), number()},
       {floats(SAMPLES, LOSSES, 0, 0), floats(SAMPLES, 2 * LOSSES, 0, 0)},
       SAMPLES * LOSSES,
       0,
       0,
       0},
      {"loss, a part of the vocabulary",
       BOTH(loss),
       {{0}},
       {floats(SAMPLES, LOSSES, PART, 0), words(LOSSES)},
       {number(), number()},
       {floats(SAMPLES, LOSSES, 0, 0), floats(SAMPLES, 2 * LOSSES, 0, 0)},
       SAMPLES * LOSSES,
       0,
       FIRST,
       0},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) try_layer(&all[i]);
}

/* ---- what fails ---- */

static void a_device_that_takes_no_kernels_is_the_error_of_the_callback(void** state) {
  (void)state;
  const gpu other = open_gpu(3);
  char message[256] = "";
  const gsel_tensor x = floats(8, 0, 0, 0);
  const gsel_call call = {
      .inputs = &x, .outputs = &x, .stream = other.stream, .message = message, .message_capacity = sizeof message};
  setenv("GSEL_FAKE_CUDA_IMAGE", "209", 1);
  assert_int_equal(device_layers.gelu->forward(&call, NULL), GSEL_ERR_DEVICE);
  unsetenv("GSEL_FAKE_CUDA_IMAGE");
  assert_non_null(strstr(message, "loading the kernels of the GPT: CUDA error 209"));
  no_violations();
}

static void what_has_no_kernels_is_refused_by_name(void** state) {
  (void)state;
  struct gpt_sizes ring = sizes;
  ring.ring = 1;
  assert_null(device_refusal(&sizes));
  assert_non_null(device_refusal(&ring));
  assert_non_null(strstr(device_refusal(&ring), "ring attention has no kernels for a GPU; use --attention whole"));
}

int main(void) {
  load_doubles("fake_libcuda.so");
  g = open_gpu(0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_give_what_they_give_on_the_host),
      cmocka_unit_test(a_device_that_takes_no_kernels_is_the_error_of_the_callback),
      cmocka_unit_test(what_has_no_kernels_is_refused_by_name),
  };
  return cmocka_run_group_tests_name("gpt_kernels", tests, NULL, NULL);
}
