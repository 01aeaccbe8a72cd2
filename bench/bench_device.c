/* bench_device.c PLUGIN: what the kernels of a device plugin take, beside its own copy of as many bytes: the share of
 * the copy's bandwidth that each reaches, by events on one stream. PLUGIN is the path of a plugin, such as
 * build/lib/gsel/plugins-1/cuda.so. Prints a table; exits with 77 where the plugin cannot run. */
#include <dlfcn.h>
#include <gsel/device.h>
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 15

static const gsel_device_v1* d;
static void* ctx;
static gsel_stream* stream;
static gsel_event *begin, *end;

static void die(const char* what, gsel_error* err) {
  fprintf(stderr, "bench_device: %s: %s\n", what, err ? gsel_error_message(err).data : "failed");
  exit(1);
}
#define TRY(call)              \
  do {                         \
    gsel_error* err = NULL;    \
    if (call) die(#call, err); \
  } while (0)

static void log_line(int32_t level, const char* component, const char* line) {
  fprintf(stderr, "%d %s: %s\n", level, component, line);
}
static gsel_error* no_error(gsel_status code, const char* message) {
  fprintf(stderr, "error %d: %s\n", code, message);
  return NULL;
}
static const gsel_host_v1 host = {.struct_size = sizeof(gsel_host_v1), .log = log_line, .error_new = no_error};

typedef struct {
  const char* name;
  double bytes_per_element; /* read and written */
  int kind;                 /* of an optimizer step, or 0 */
} kernel;

static float *param, *gradient, *state0, *state1;
static void* narrow;
static double* sum;

static void enqueue(const kernel* k, uint64_t n) {
  if (!strcmp(k->name, "copy")) TRY(d->copy(ctx, param, gradient, n * 4, GSEL_COPY_ON_DEVICE, stream, &err));
  if (!strcmp(k->name, "scale f32")) TRY(d->scale(ctx, param, GSEL_F32, 1.0, n, stream, &err));
  if (!strcmp(k->name, "add f32")) TRY(d->add(ctx, param, gradient, GSEL_F32, n, stream, &err));
  if (!strcmp(k->name, "scale bf16")) TRY(d->scale(ctx, narrow, GSEL_BF16, 1.0, n, stream, &err));
  if (!strcmp(k->name, "cast f32 to bf16")) TRY(d->cast(ctx, narrow, GSEL_BF16, param, GSEL_F32, n, stream, &err));
  if (!strcmp(k->name, "cast bf16 to f32")) TRY(d->cast(ctx, param, GSEL_F32, narrow, GSEL_BF16, n, stream, &err));
  if (!strcmp(k->name, "sum of squares f32")) TRY(d->sum_squares(ctx, gradient, GSEL_F32, n, sum, stream, &err));
  if (k->kind) {
    const gsel_optimizer_step step = {.struct_size = sizeof step,
                                      .kind = k->kind,
                                      .param = param,
                                      .gradient = gradient,
                                      .state0 = k->kind == GSEL_OPTIMIZER_SGD ? NULL : state0,
                                      .state1 = k->kind == GSEL_OPTIMIZER_ADAMW ? state1 : NULL,
                                      .count = n,
                                      .t = 1,
                                      .gradient_scale = 1,
                                      .learning_rate = 1e-3,
                                      .weight_decay = 0.01,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .epsilon = 1e-8,
                                      .param16 = strstr(k->name, "bf16") ? narrow : NULL,
                                      .param16_dtype = GSEL_BF16};
    TRY(d->optimizer_step(ctx, &step, stream, &err));
  }
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Median seconds of one; each time enough of them that the clock does not matter. */
static double seconds_of(const kernel* k, uint64_t n) {
  double all[ROUNDS];
  const int repeats = n >= 1u << 24 ? 5 : 50;
  for (int round = -2; round < ROUNDS; ++round) {
    TRY(d->event_record(ctx, begin, stream, &err));
    for (int i = 0; i < repeats; ++i) enqueue(k, n);
    TRY(d->event_record(ctx, end, stream, &err));
    TRY(d->event_wait(ctx, end, &err));
    if (round >= 0) all[round] = d->event_seconds(ctx, begin, end) / repeats;
  }
  qsort(all, ROUNDS, sizeof *all, by_value);
  return all[ROUNDS / 2];
}

static void* memory(uint64_t bytes, int32_t kind) {
  void* made = NULL;
  TRY(d->alloc(ctx, kind, bytes, &made, &err));
  return made;
}

int main(int argc, char** argv) {
  static const kernel kernels[] = {{"copy", 8, 0},
                                   {"scale f32", 8, 0},
                                   {"add f32", 12, 0},
                                   {"scale bf16", 4, 0},
                                   {"cast f32 to bf16", 6, 0},
                                   {"cast bf16 to f32", 6, 0},
                                   {"sum of squares f32", 4, 0},
                                   {"sgd", 12, GSEL_OPTIMIZER_SGD},
                                   {"lion", 20, GSEL_OPTIMIZER_LION},
                                   {"adamw", 28, GSEL_OPTIMIZER_ADAMW},
                                   {"adamw, bf16 copy", 30, GSEL_OPTIMIZER_ADAMW}};
  const uint64_t most = argc > 2 ? strtoull(argv[2], NULL, 10) : 1u << 26;
  void* module = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  const struct gsel_plugin_v1* plugin = module ? dlsym(module, "gsel_plugin_v1") : NULL;
  if (!plugin || plugin->kind != GSEL_PLUGIN_DEVICE) {
    fprintf(stderr, "usage: bench_device PLUGIN [ELEMENTS]: %s\n", argc > 1 ? dlerror() : "no plugin is named");
    return 2;
  }
  char reason[512] = "";
  if (plugin->probe && plugin->probe(&host, reason, sizeof reason) == 0) {
    fprintf(stderr, "bench_device: %s cannot run here: %s\n", plugin->name, reason);
    return 77;
  }
  d = plugin->table;
  const gsel_device_options options = {.struct_size = sizeof options};
  gsel_device_description device = {.struct_size = sizeof device};
  TRY(d->open(&host, &options, &ctx, &err));
  TRY(d->describe(ctx, &device, &err));
  TRY(d->stream_create(ctx, 0, &stream, &err));
  TRY(d->event_create(ctx, GSEL_EVENT_TIMING, &begin, &err));
  TRY(d->event_create(ctx, GSEL_EVENT_TIMING, &end, &err));
  float** arrays[] = {&param, &gradient, &state0, &state1};
  for (int i = 0; i < 4; ++i) {
    *arrays[i] = memory(most * 4, GSEL_MEMORY_DEVICE);
    TRY(d->zero(ctx, *arrays[i], most * 4, stream, &err));
  }
  narrow = memory(most * 2, GSEL_MEMORY_DEVICE);
  TRY(d->zero(ctx, narrow, most * 2, stream, &err));
  sum = memory(sizeof *sum, GSEL_MEMORY_PINNED);

  printf("%s on %.*s, medians of %d\n\n", plugin->name, (int)device.name.len, device.name.data, ROUNDS);
  printf("| kernel | elements | us | GB/s | of the copy's bandwidth |\n|---|--:|--:|--:|--:|\n");
  for (uint64_t n = 1u << 12; n <= most; n <<= 4)
    for (size_t i = 0, all = sizeof kernels / sizeof *kernels; i < all; ++i) {
      const kernel* k = &kernels[i];
      const double copied = 8.0 * (double)n / seconds_of(&kernels[0], n); /* beside it, so that drift is in both */
      const double seconds = seconds_of(k, n), rate = k->bytes_per_element * (double)n / seconds;
      printf("| %s | %llu | %.2f | %.1f | %.2f |\n", k->name, (unsigned long long)n, seconds * 1e6, rate * 1e-9,
             rate / copied);
    }
  for (int i = 0; i < 4; ++i) d->free(ctx, *arrays[i]);
  d->free(ctx, narrow);
  d->free(ctx, sum);
  d->event_free(ctx, begin);
  d->event_free(ctx, end);
  d->stream_free(ctx, stream);
  d->close(ctx);
  return 0;
}
