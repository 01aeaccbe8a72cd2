/* bench_optimizer: how near optimizer steps come to what the memory gives: bench_optimizer [repetitions]. A model of
 * one parameter is trained on one rank; the time is what the step's report says of the optimizer. Beside each step
 * stands a loop that moves the same bytes in the same number of streams and does next to nothing with them; the two
 * take turns, so that whatever else the machine does hits both. */
#define _POSIX_C_SOURCE 200809L
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_REPETITIONS = 1000 };

#if defined(__x86_64__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Prints what went wrong and leaves. */
static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  fprintf(stderr, "bench_optimizer: %s\n", gsel_error_message(*err).data);
  exit(1);
}

/* ---- what the memory gives ---- */

struct arrays {
  float *a, *b, *c, *in;
  uint16_t* out;
  size_t count;
};

/* One stream is read, three are read and written back. */
WIDE static void move_three(const struct arrays* x) {
  float *a = x->a, *b = x->b, *c = x->c, *in = x->in;
  const size_t count = x->count;
  INDEPENDENT
  for (size_t i = 0; i < count; ++i) a[i] += in[i], b[i] += in[i], c[i] += in[i];
}

/* And one of two bytes is written. */
WIDE static void move_three_and_half(const struct arrays* x) {
  float *a = x->a, *b = x->b, *c = x->c, *in = x->in;
  const size_t count = x->count;
  uint16_t* out = x->out;
  INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    a[i] += in[i], b[i] += in[i], c[i] += in[i];
    out[i] = (uint16_t)i;
  }
}

WIDE static void move_two(const struct arrays* x) {
  float *a = x->a, *b = x->b, *in = x->in;
  const size_t count = x->count;
  INDEPENDENT
  for (size_t i = 0; i < count; ++i) a[i] += in[i], b[i] += in[i];
}

/* Two of the streams are of bytes. */
WIDE static void move_bytes(const struct arrays* x) {
  float *a = x->a, *in = x->in;
  const size_t count = x->count;
  uint8_t *b = (uint8_t*)x->b, *c = (uint8_t*)x->c;
  INDEPENDENT
  for (size_t i = 0; i < count; ++i) a[i] += in[i], b[i] ^= 1, c[i] ^= 1;
}

static struct arrays make_arrays(size_t count) {
  struct arrays x = {0};
  x.count = count;
  float** const all[] = {&x.a, &x.b, &x.c, &x.in};
  for (int i = 0; i < 4; ++i)
    if (posix_memalign((void**)all[i], 64, count * sizeof(float))) exit(1);
  if (posix_memalign((void**)&x.out, 64, count * sizeof(uint16_t))) exit(1);
  for (int i = 0; i < 4; ++i) memset(*all[i], 0, count * sizeof(float));
  memset(x.out, 0, count * sizeof(uint16_t));
  return x;
}

static void free_arrays(struct arrays* x) {
  free(x->a), free(x->b), free(x->c), free(x->in), free(x->out);
}

/* ---- the step ---- */

static void fill(float* gradient, size_t count) {
  for (size_t i = 0; i < count; ++i) gradient[i] = (float)(i % 255 + 1) * 0x1p-10f;
}

static gsel_status forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(float*)call->outputs[0].data = 0;
  return GSEL_OK;
}

static gsel_status backward(const gsel_call* call, void* user_data) {
  fill(call->d_params[0].data, *(const size_t*)user_data);
  return GSEL_OK;
}

static gsel_status loss_forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}

static gsel_status loss_backward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(float*)call->d_inputs[0].data = 1;
  return GSEL_OK;
}

static gsel_status no_data(const gsel_data_request* request, void* user_data) {
  (void)user_data;
  memset(request->dst.data, 0, sizeof(float));
  return GSEL_OK;
}

static int32_t add_value(gsel_model* model, const char* name, gsel_dtype dtype, uint32_t flags) {
  gsel_error* err = NULL;
  const int64_t one[] = {1};
  int32_t id;
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  options.name = gsel_str_from(name), options.dtype = dtype, options.flags = flags;
  options.dims = one, options.n_dims = flags & GSEL_VALUE_SCALAR ? 0 : 1;
  check(gsel_model_add_value(model, &options, &id, &err), &err);
  return id;
}

/* x -> one layer with a parameter of *count elements, which stays where it is -> y -> loss. */
static gsel_model* make_model(size_t* count) {
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  check(gsel_model_create(&model, &err), &err);
  const int64_t dims[] = {(int64_t)*count};
  int32_t w;
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w"), param.dims = dims, param.n_dims = 1;
  check(gsel_model_add_param(model, &param, &w, &err), &err);
  const int32_t x = add_value(model, "x", GSEL_F32, GSEL_VALUE_INPUT), y = add_value(model, "y", GSEL_F32, 0);
  const int32_t sums[] = {add_value(model, "loss", GSEL_F64, GSEL_VALUE_SCALAR),
                          add_value(model, "weight", GSEL_F64, GSEL_VALUE_SCALAR)};
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT, loss = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("all"), layer.inputs = &x, layer.n_inputs = 1, layer.outputs = &y, layer.n_outputs = 1;
  layer.params = &w, layer.n_params = 1;
  layer.forward = forward, layer.backward = backward, layer.user_data = count;
  check(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  loss.name = gsel_str_from("sum"), loss.inputs = &y, loss.n_inputs = 1, loss.outputs = sums, loss.n_outputs = 2;
  loss.flags = GSEL_LAYER_LOSS, loss.forward = loss_forward, loss.backward = loss_backward;
  check(gsel_model_add_layer(model, &loss, NULL, &err), &err);
  return model;
}

static gsel_trainer* make_trainer(gsel_comm* comm, gsel_model* model, const char* settings) {
  gsel_error* err = NULL;
  gsel_config* config = NULL;
  gsel_trainer* trainer = NULL;
  char text[256];
  snprintf(text, sizeof text, "[train]\nbatch = 1\n%s", settings);
  check(gsel_config_parse(gsel_str_from(text), gsel_str_from("bench_optimizer"), &config, &err), &err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = config, options.data = no_data;
  check(gsel_trainer_create(comm, model, &options, &trainer, &err), &err);
  gsel_config_free(config);
  return trainer;
}

/* ---- side by side ---- */

struct row {
  const char *name, *settings;
  void (*move)(const struct arrays*);
  int bytes; /* moved per element; scales of 8-bit state left out */
};
static const struct row kRows[] = {
    {"adamw", "", move_three, 28},
    {"adamw, bf16 beside a master copy", "precision = \"bf16\"\n", move_three_and_half, 30},
    {"adamw, fp16 beside a master copy", "precision = \"fp16\"\n", move_three_and_half, 30},
    {"adam", "optimizer = \"adam\"\n", move_three, 28},
    {"lion", "optimizer = \"lion\"\n", move_two, 20},
    {"sgd with momentum", "optimizer = \"sgd\"\nmomentum = 0.9\n", move_two, 20},
    {"adamw_8bit", "optimizer = \"adamw_8bit\"\n", move_bytes, 16},
};

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* times, int n) {
  qsort(times, (size_t)n, sizeof *times, ascending);
  return times[n / 2];
}

static void measure(gsel_comm* comm, const struct row* row, size_t mebibytes, int repetitions) {
  static double stepped[MOST_REPETITIONS], moved[MOST_REPETITIONS], ratios[MOST_REPETITIONS];
  gsel_error* err = NULL;
  size_t count = (mebibytes << 20) / sizeof(float);
  gsel_model* model = make_model(&count);
  gsel_trainer* trainer = make_trainer(comm, model, row->settings);
  struct arrays x = make_arrays(count);
  for (int i = -1; i < repetitions; ++i) { /* the first one warms up */
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    check(gsel_trainer_step(trainer, &report, &err), &err);
    fill(x.in, count);
    const double begin = now();
    row->move(&x);
    if (i < 0) continue;
    moved[i] = now() - begin;
    stepped[i] = report.optimizer_s;
    ratios[i] = 100 * moved[i] / stepped[i];
  }
  const double gigabytes = 1e-9 * row->bytes * (double)count, step = median(stepped, repetitions);
  const double ratio = median(ratios, repetitions);
  printf("| %s | %d | %zu MiB | %.2f | %.1f | %.1f | %.0f %% (%.0f-%.0f) |\n", row->name, row->bytes, mebibytes,
         1e3 * step, gigabytes / step, gigabytes / median(moved, repetitions), ratio, ratios[0],
         ratios[repetitions - 1]);
  fflush(stdout);
  free_arrays(&x);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
}

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? atoi(argv[1]) : 21;
  if (repetitions < 1 || repetitions > MOST_REPETITIONS) {
    fprintf(stderr, "bench_optimizer: repetitions are a number from 1 to %d\n", MOST_REPETITIONS);
    return 2;
  }
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_unique_id id;
  check(gsel_unique_id_create(&id, &err), &err);
  options.rank = 0, options.world_size = 1, options.id = &id;
  check(gsel_comm_init(&options, &comm, &err), &err);
  printf("| step | bytes per element | f32 parameters | ms | step GB/s | memory GB/s | of memory (min-max) |\n");
  printf("|---|---|---|---|---|---|---|\n");
  for (size_t r = 0; r < sizeof kRows / sizeof *kRows; ++r)
    for (size_t mebibytes = 16; mebibytes <= 256; mebibytes *= 4) measure(comm, &kRows[r], mebibytes, repetitions);
  gsel_comm_free(comm);
  return 0;
}
