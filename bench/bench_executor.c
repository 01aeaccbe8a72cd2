/* bench_executor.c [ACCELERATOR [STRATEGY [STEPS [GRAPH]]]]: host time of the executor for an instruction. The model is
 * a chain of layers whose callbacks do nothing, so what is left of a step is gsel's own. ACCELERATOR: "cuda" for a
 * device; without one the host. STRATEGY: lines of gsel.toml, with threads as two ranks where they name an axis. On the
 * tensor axis every second layer has columns of its parameter and the others rows, on the context axis each layer works
 * by position. GRAPH: "on" for steps that are launched as graphs.
 *
 * The time in callbacks, and the time that a rank waits for others, are taken off. On the double of CUDA's driver
 * (tests/fake/cuda) it is processor time of the rank's thread, without that inside the double, which runs kernels on
 * the host. On a card the driver's calls stay: they are what a launch costs. Prints rows of a table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <gsel/gsel.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "clock_check.h"

enum { LAYERS = 24, INPUT = LAYERS + 3, WIDTH = 16, SAMPLES = 1, MOST_STEPS = 400, MOST_RANKS = 2 };

/* ---- the driver, as the loss's callback uses it ---- */

static struct {
  int (*retain)(void** context, int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*alloc)(uint64_t* memory, size_t bytes);
  int (*copy)(uint64_t dst, uint64_t src, size_t bytes, void* stream);
  int (*synchronize)(void* stream);
  double (*inside)(void); /* of the double alone: processor seconds of this thread inside the driver */
  int64_t (*calls)(void); /* how often */
} cuda;

static void find(void* library, const char* symbol, void* out, int is_required) {
  void* found = dlsym(library, symbol);
  memcpy(out, &found, sizeof found);
  if (found || !is_required) return;
  fprintf(stderr, "bench_executor: libcuda.so.1 has no %s; use a newer driver\n", symbol);
  exit(1);
}

/* False: there is no driver. */
static int load_driver(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  find(library, "cuDevicePrimaryCtxRetain", &cuda.retain, 1);
  find(library, "cuCtxPushCurrent_v2", &cuda.push, 1);
  find(library, "cuCtxPopCurrent_v2", &cuda.pop, 1);
  find(library, "cuMemAlloc_v2", &cuda.alloc, 1);
  find(library, "cuMemcpyAsync", &cuda.copy, 1);
  find(library, "cuStreamSynchronize", &cuda.synchronize, 1);
  find(library, "fake_cuda_processor_seconds", &cuda.inside, 0);
  find(library, "fake_cuda_entries", &cuda.calls, 0);
  return 1;
}

/* ---- ranks ---- */

struct rank {
  const char *accelerator, *strategy, *graph;
  gsel_unique_id id;
  int rank, ranks, steps;
  void* context;
  uint64_t loss; /* memory of the device: 0 and 1 */
  double seconds[MOST_STEPS], plain[MOST_STEPS];
  double calls, clock_seconds;
  int32_t instructions;
};

/* ---- callbacks ---- */

static gsel_status nothing(const gsel_call* call, void* user_data) {
  (void)call, (void)user_data;
  return GSEL_OK;
}
static gsel_status zeros(const gsel_call* call, void* user_data) {
  (void)user_data;
  if (!call->stream)
    for (int32_t i = 0; i < call->n_params; ++i)
      memset(call->d_params[i].data, 0, (size_t)call->d_params[i].n_elems * sizeof(float));
  return GSEL_OK;
}
/* Of what is divided on the context axis; else the model has no input. */
static gsel_status no_data(const gsel_data_request* request, void* user_data) {
  (void)request, (void)user_data;
  return GSEL_OK;
}
static gsel_status end_forward(const gsel_call* call, void* user_data) {
  const struct rank* r = user_data;
  if (!call->stream) {
    *(double*)call->outputs[0].data = 0;
    *(double*)call->outputs[1].data = 1;
    return GSEL_OK;
  }
  int failed = cuda.push(r->context);
  for (int i = 0; i < 2 && !failed; ++i)
    failed = cuda.copy((uintptr_t)call->outputs[i].data, r->loss + 8 * (uint64_t)i, 8, call->stream);
  cuda.pop(&(void*){NULL});
  return failed ? GSEL_ERR_DEVICE : GSEL_OK;
}

/* ---- the model: source, layers, loss ---- */

static int is_divided_by(const struct rank* r, const char* section) {
  return strstr(r->strategy, section) != NULL;
}

static void add_value(const struct rank* r, gsel_model* model, const char* name, int64_t width, int number) {
  gsel_error* err = NULL;
  gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
  value.name = gsel_str_from(name);
  value.dims = &width;
  value.n_dims = width > 0;
  value.dtype = width > 0 ? GSEL_F32 : GSEL_F64;
  value.flags = width > 0 ? 0 : GSEL_VALUE_SCALAR;
  if (width > 0 && is_divided_by(r, "[strategy.context]")) value.sequence_dim = 1;
  if (width > 0 && number > 0 && number < INPUT && is_divided_by(r, "[strategy.tensor]"))
    value.placement = number % 2 ? GSEL_PLACEMENT_SHARD : GSEL_PLACEMENT_PARTIAL;
  if (value.placement == GSEL_PLACEMENT_SHARD) value.shard_dim = 1;
  if (number == INPUT) value.flags = GSEL_VALUE_INPUT;
  check(gsel_model_add_value(model, &value, NULL, &err), &err);
}

static gsel_model* describe(struct rank* r) {
  char name[24];
  const int64_t width = WIDTH;
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  check(gsel_model_create(&model, &err), &err);
  for (int i = 0; i <= LAYERS; ++i) {
    gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
    snprintf(name, sizeof name, "w%d", i);
    param.name = gsel_str_from(name);
    param.dims = &width;
    param.n_dims = 1;
    if (i > 0 && is_divided_by(r, "[strategy.tensor]")) param.shard = GSEL_SHARD_DIM;
    check(gsel_model_add_param(model, &param, NULL, &err), &err);
    snprintf(name, sizeof name, "x%d", i);
    add_value(r, model, name, width, i);
  }
  add_value(r, model, "loss", 0, 0);
  add_value(r, model, "weight", 0, 0);
  const int has_input = is_divided_by(r, "[strategy.context]");
  if (has_input) add_value(r, model, "input", width, INPUT);
  for (int32_t l = 0; l <= LAYERS + 1; ++l) {
    const int32_t in = l > 0 ? l - 1 : INPUT, out[] = {l, l + 1};
    const int is_source = l == 0, is_loss = l == LAYERS + 1;
    gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
    snprintf(name, sizeof name, "layer%d", (int)l);
    layer.name = gsel_str_from(name);
    layer.inputs = &in;
    layer.n_inputs = !is_source || has_input;
    layer.outputs = out;
    layer.n_outputs = is_loss ? 2 : 1;
    layer.params = &l;
    layer.n_params = !is_loss;
    layer.flags = is_loss ? GSEL_LAYER_LOSS : 0;
    if (is_divided_by(r, "[strategy.context]")) layer.flags |= GSEL_LAYER_POSITIONWISE;
    layer.forward = is_loss ? end_forward : nothing;
    layer.backward_input = is_source ? NULL : nothing;
    layer.backward_weight = is_loss ? NULL : zeros;
    layer.user_data = r;
    check(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  }
  return model;
}

static gsel_trainer* open_trainer(struct rank* r, gsel_comm* comm, gsel_model* model) {
  char text[2048];
  gsel_error* err = NULL;
  gsel_config* config = NULL;
  gsel_trainer* trainer = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  snprintf(text, sizeof text,
           "%s\n[train]\noptimizer = \"sgd\"\nlearning_rate = 0.1\nbatch = %d\nmicrobatch = %d\nnon_finite = \"off\"\n"
           "graph = \"%s\"\n",
           r->strategy, 4 * SAMPLES * (is_divided_by(r, "[strategy.data]") ? r->ranks : 1), SAMPLES, r->graph);
  check(gsel_config_parse(gsel_str_from(text), gsel_str_from("bench_executor.c"), &config, &err), &err);
  options.config = config;
  options.data = no_data;
  check(gsel_trainer_create(comm, model, &options, &trainer, &err), &err);
  gsel_config_free(config);
  return trainer;
}

/* Numbers on the device that the loss's callback copies. */
static void open_device(struct rank* r) {
  static const double loss[] = {0, 1};
  if (cuda.retain(&r->context, r->rank) || cuda.push(r->context) || cuda.alloc(&r->loss, sizeof loss) ||
      cuda.copy(r->loss, (uintptr_t)loss, sizeof loss, NULL) || cuda.synchronize(NULL)) {
    fprintf(stderr, "bench_executor: device %d gives no memory\n", r->rank);
    exit(1);
  }
  cuda.pop(&(void*){NULL});
}

static double processor_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Of reading that clock, which the double does at each end of a call: half of each is outside. */
static double clock_seconds(void) {
  enum { READS = 1000 };
  const double begin = processor_seconds();
  for (int i = 0; i < READS; ++i) (void)processor_seconds();
  return (processor_seconds() - begin) / READS;
}

static void one_step(struct rank* r, gsel_trainer* trainer, int i) {
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  const double inside = cuda.inside ? cuda.inside() : 0, worked = processor_seconds();
  const int64_t calls = cuda.calls ? cuda.calls() : 0;
  const double begin = now();
  check(gsel_trainer_step(trainer, &report, &err), &err);
  const double seconds = now() - begin, work = processor_seconds() - worked;
  if (i < 0) return;
  r->plain[i] = seconds;
  r->seconds[i] = cuda.inside ? work - (cuda.inside() - inside) - (double)(cuda.calls() - calls) * r->clock_seconds
                              : seconds - report.compute_s - report.exposed_comm_s;
  if (cuda.calls) r->calls = (double)(cuda.calls() - calls);
}

static void* run_rank(void* argument) {
  struct rank* r = argument;
  char accelerator[64];
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = r->rank;
  options.world_size = r->ranks;
  options.id = &r->id;
  snprintf(accelerator, sizeof accelerator, "%s:%d", r->accelerator, r->rank);
  if (*r->accelerator) options.accelerator = gsel_str_from(accelerator);
  check(gsel_comm_init(&options, &comm, &err), &err);
  if (*r->accelerator) open_device(r);
  gsel_model* model = describe(r);
  gsel_trainer* trainer = open_trainer(r, comm, model);
  r->instructions = gsel_program_length(gsel_trainer_program(trainer));
  r->clock_seconds = clock_seconds();
  for (int i = -r->steps / 10 - 1; i < r->steps; ++i) one_step(r, trainer, i);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return NULL;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  static struct rank ranks[MOST_RANKS];
  pthread_t threads[MOST_RANKS];
  gsel_error* err = NULL;
  gsel_unique_id id;
  const char* accelerator = argc > 1 ? argv[1] : "";
  const char* strategy = argc > 2 ? argv[2] : "";
  const int n = *strategy ? 2 : 1;
  const int steps = argc > 3 ? atoi(argv[3]) : MOST_STEPS;
  const char* graph = argc > 4 ? argv[4] : "off";
  if (argc > 5 || steps < 1 || steps > MOST_STEPS) {
    fprintf(stderr, "usage: bench_executor [ACCELERATOR [STRATEGY [STEPS [GRAPH]]]], at most %d steps\n", MOST_STEPS);
    return 2;
  }
  if (*accelerator && !load_driver()) {
    fprintf(stderr, "bench_executor: %s\n", dlerror());
    return 77;
  }
  check(gsel_unique_id_create(&id, &err), &err);
  for (int i = 0; i < n; ++i) {
    ranks[i] = (struct rank){.accelerator = accelerator,
                             .strategy = strategy,
                             .graph = graph,
                             .id = id,
                             .rank = i,
                             .ranks = n,
                             .steps = steps};
    if (pthread_create(&threads[i], NULL, run_rank, &ranks[i])) return 1;
  }
  for (int i = 0; i < n; ++i) pthread_join(threads[i], NULL);
  const struct rank* r = &ranks[0];
  qsort(ranks[0].seconds, (size_t)steps, sizeof(double), by_value);
  qsort(ranks[0].plain, (size_t)steps, sizeof(double), by_value);
  const double each = 1e6 / r->instructions;
  printf("%" PRId32 " | %.2f (%.2f to %.2f) | %.2f | ", r->instructions, r->seconds[steps / 2] * each,
         r->seconds[steps / 4] * each, r->seconds[3 * steps / 4] * each, r->plain[steps / 2] * each);
  if (cuda.calls)
    printf("%.2f |\n", r->calls / r->instructions);
  else
    printf("|\n");
  return 0;
}
