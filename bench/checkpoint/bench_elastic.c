/* bench_elastic.c: bench_elastic [MIB [ROUNDS]]: four ranks train a model of MIB MiB of parameters with adamw, one is
 * killed in a step, the others shrink, rebind and go on: how long each part takes, seen by rank 0, and what
 * train.redundancy adds to a step. Medians. */
#define _GNU_SOURCE
#include <gsel/gsel.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, MOST_ROUNDS = 31, STEPS = 5 };
enum { STEP, NOTICED, SHRUNK, REBOUND, MOVED, GOES_ON, MEASURES };

struct shared {
  double killed, times[MEASURES];
  gsel_unique_id id;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(gsel_status status, gsel_error* const* err) {
  if (!status) return;
  char text[1024];
  gsel_error_format(*err, text, sizeof text);
  fprintf(stderr, "bench_elastic: %s\n", text);
  _exit(1);
}

static double* dies_at; /* of the victim in the step in which it dies */

static gsel_status forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  if (dies_at) {
    *dies_at = now();
    kill(getpid(), SIGKILL);
  }
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}

static gsel_status backward(const gsel_call* call, void* user_data) {
  float* gradient = call->d_params[0].data;
  (void)user_data;
  for (int64_t i = 0; i < call->d_params[0].n_elems; ++i) gradient[i] = (float)(i % 255 + 1) * 0x1p-10f;
  return GSEL_OK;
}

static gsel_status no_data(const gsel_data_request* request, void* user_data) {
  (void)user_data;
  memset(request->dst.data, 0, sizeof(float) * (size_t)request->n_samples);
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

static gsel_model* make_model(int64_t elems) {
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  int32_t w;
  check(gsel_model_create(&model, &err), &err);
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w"), param.dims = &elems, param.n_dims = 1;
  check(gsel_model_add_param(model, &param, &w, &err), &err);
  const int32_t x = add_value(model, "x", GSEL_F32, GSEL_VALUE_INPUT);
  const int32_t sums[] = {add_value(model, "loss", GSEL_F64, GSEL_VALUE_SCALAR),
                          add_value(model, "weight", GSEL_F64, GSEL_VALUE_SCALAR)};
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("all"), layer.inputs = &x, layer.n_inputs = 1, layer.outputs = sums, layer.n_outputs = 2;
  layer.params = &w, layer.n_params = 1, layer.flags = GSEL_LAYER_LOSS;
  layer.forward = forward, layer.backward = backward;
  check(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  return model;
}

static void train(struct shared* shared, int32_t rank, int64_t elems, const char* text, int has_victim) {
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  gsel_config* config;
  gsel_trainer* trainer;
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_rebind_report report = GSEL_REBIND_REPORT_INIT;
  gsel_model* model = make_model(elems);
  joining.rank = rank, joining.world_size = RANKS, joining.id = &shared->id;
  check(gsel_comm_init(&joining, &comm, &err), &err);
  check(gsel_config_parse(gsel_str_from(text), gsel_str_from("bench_elastic"), &config, &err), &err);
  options.config = config, options.data = no_data;
  check(gsel_trainer_create(comm, model, &options, &trainer, &err), &err);
  check(gsel_trainer_step(trainer, NULL, &err), &err);
  const double began = now();
  for (int i = 0; i < STEPS; ++i) check(gsel_trainer_step(trainer, NULL, &err), &err);
  if (rank == 0) shared->times[STEP] = (now() - began) / STEPS;
  if (has_victim) {
    if (rank == RANKS - 1) dies_at = &shared->killed;
    if (gsel_trainer_step(trainer, NULL, &err) == GSEL_OK) _exit(1);
    gsel_error_free(err);
    err = NULL;
    const double noticed = now();
    check(gsel_comm_shrink(comm, &smaller, &err), &err);
    const double shrunk = now();
    check(gsel_trainer_rebind(trainer, smaller, NULL, &report, &err), &err);
    const double rebound = now();
    check(gsel_trainer_step(trainer, NULL, &err), &err);
    if (rank == 0) {
      const double all[] = {shared->times[STEP], noticed - shared->killed, shrunk - noticed,
                            rebound - shrunk,    report.move_seconds,      now() - shared->killed};
      memcpy(shared->times, all, sizeof all);
    }
    gsel_comm_free(comm);
    comm = smaller;
  }
  gsel_trainer_free(trainer);
  gsel_comm_free(comm);
  _exit(0);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static int measure(struct shared* shared, int64_t elems, int rounds, const char* name, const char* text,
                   int has_victim) {
  static double times[MEASURES][MOST_ROUNDS];
  for (int i = 0; i < rounds; ++i) {
    if (gsel_unique_id_create(&shared->id, NULL)) return 1;
    for (int32_t r = 0; r < RANKS; ++r)
      if (fork() == 0) train(shared, r, elems, text, has_victim);
    for (int status, n = 0; n < RANKS; ++n)
      if (wait(&status) < 0 || (WIFEXITED(status) && WEXITSTATUS(status))) return 1;
    for (int m = 0; m < MEASURES; ++m) times[m][i] = shared->times[m];
  }
  printf("| %s |", name);
  for (int m = 0; m < MEASURES; ++m) {
    qsort(times[m], (size_t)rounds, sizeof(double), ascending);
    if (m == STEP || has_victim)
      printf(" %.1f |", 1e3 * times[m][rounds / 2]);
    else
      printf(" |");
  }
  printf("\n");
  fflush(stdout);
  return 0;
}

int main(int argc, char** argv) {
  const double mib = argc > 1 ? atof(argv[1]) : 16;
  const int rounds = argc > 2 ? atoi(argv[2]) : 7;
  if (!(mib > 0 && mib <= 4096) || rounds < 1 || rounds > MOST_ROUNDS) {
    fprintf(stderr, "usage: bench_elastic [MIB [ROUNDS]]\n");
    return 2;
  }
  const int64_t elems = (int64_t)(mib * 1024 * 1024 / 4);
  struct shared* shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
#define TRAIN "[train]\nbatch = 12\nmicrobatch = 1\noptimizer = \"adamw\"\n"
#define DDP "[strategy.data]\nplugin = \"ddp\"\n" TRAIN
#define ZERO "[strategy.data]\nplugin = \"zero\"\nstage = 1\n" TRAIN
  printf(
      "| %.0f MiB of parameters, four ranks; ms | a step before | noticed | shrunk | rebound | of that, the state "
      "moved "
      "| killed until the next step has ended |\n|---|--:|--:|--:|--:|--:|--:|\n",
      mib);
  return measure(shared, elems, rounds, "ddp", DDP, 0) ||
         measure(shared, elems, rounds, "ddp, elastic", DDP "elastic = \"on\"\n", 1) ||
         measure(shared, elems, rounds, "zero 1", ZERO, 0) ||
         measure(shared, elems, rounds, "zero 1, redundancy 1", ZERO "redundancy = 1\n", 1) ||
         measure(shared, elems, rounds, "zero 1, redundancy 1 every 10 steps",
                 ZERO "redundancy = 1\nredundancy_every = 10\n", 1);
}
