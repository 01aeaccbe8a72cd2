/* chain.c: see chain.h. */
#define _GNU_SOURCE
#include "chain.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock_check.h"

struct rank {
  const struct chain* chain;
  gsel_unique_id id;
  int rank, runs;
  double begin, end;            /* of callbacks in the run under way */
  struct chain_result* results; /* [runs] this rank's: makespan_s holds begin, busiest_s end until they are joined */
  double* busy;
};

/* ---- kernels ---- */

/* Volatile, so that the loop stays where it stands. */
static volatile double source = 1, sink;

static void turn(double turns) {
  double x = source;
  for (int64_t i = 0; i < (int64_t)turns; ++i) x = x * 0.999999 + 1e-6;
  sink = x;
}

double chain_turns_per_second(void) {
  double fastest = 0;
  for (int i = 0; i < 20; ++i) {
    const double begin = now();
    turn(1e6);
    const double speed = 1e6 / (now() - begin);
    if (speed > fastest) fastest = speed;
  }
  return fastest;
}

static gsel_status work(struct rank* r, double amount) {
  const double begin = now(), end = begin + amount;
  const struct timespec until = {(time_t)end, (long)(1e9 * (end - (double)(time_t)end))};
  if (r->begin == 0) r->begin = begin;
  if (r->chain->computes)
    turn(amount);
  else if (amount > 0)
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
  r->end = now();
  return GSEL_OK;
}

static gsel_status forward(const gsel_call* call, void* user_data) {
  (void)call;
  return work(user_data, ((struct rank*)user_data)->chain->forward);
}
static gsel_status backward_input(const gsel_call* call, void* user_data) {
  (void)call;
  return work(user_data, ((struct rank*)user_data)->chain->backward_input);
}
static gsel_status backward_weight(const gsel_call* call, void* user_data) {
  (void)call;
  return work(user_data, ((struct rank*)user_data)->chain->backward_weight);
}
static gsel_status nothing(const gsel_call* call, void* user_data) {
  (void)call, (void)user_data;
  return GSEL_OK;
}
static gsel_status end_forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}

/* ---- the model: source, a layer for each stage, loss ---- */

static void add_value(gsel_model* model, const char* name, int64_t width) {
  gsel_error* err = NULL;
  gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
  value.name = gsel_str_from(name);
  value.dims = &width;
  value.n_dims = width > 0;
  value.dtype = width > 0 ? GSEL_F32 : GSEL_F64;
  value.flags = width > 0 ? 0 : GSEL_VALUE_SCALAR;
  check(gsel_model_add_value(model, &value, NULL, &err), &err);
}

/* Value i comes out of the source (0) or of stage i's layer. The source makes the first stage compute the gradient of
 * its input, as the others do. */
static gsel_model* describe(struct rank* r) {
  const int n = r->chain->stages;
  char name[24];
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  check(gsel_model_create(&model, &err), &err);
  for (int v = 0; v <= n; ++v) {
    snprintf(name, sizeof name, "x%d", v);
    add_value(model, name, r->chain->width);
  }
  add_value(model, "loss", 0);
  add_value(model, "weight", 0);
  for (int32_t l = 0; l <= n + 1; ++l) {
    const int32_t in = l - 1, out[] = {l, l + 1};
    const int is_source = l == 0, is_loss = l == n + 1;
    gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
    snprintf(name, sizeof name, "layer%d", (int)l);
    layer.name = gsel_str_from(name);
    layer.inputs = &in;
    layer.n_inputs = !is_source;
    layer.outputs = out;
    layer.n_outputs = is_loss ? 2 : 1;
    layer.flags = is_loss ? GSEL_LAYER_LOSS : GSEL_LAYER_OWN_PARAMS;
    layer.forward = is_source ? nothing : is_loss ? end_forward : forward;
    layer.backward_input = is_loss ? nothing : is_source ? NULL : backward_input;
    layer.backward_weight = is_source ? nothing : is_loss ? NULL : backward_weight;
    layer.user_data = r;
    check(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  }
  return model;
}

/* ---- ranks ---- */

static gsel_pipeline* open_pipeline(struct rank* r, gsel_comm* comm, gsel_model* model) {
  int32_t first[CHAIN_MOST_STAGES];
  gsel_error* err = NULL;
  gsel_pipeline* pipeline = NULL;
  gsel_pipeline_options options = GSEL_PIPELINE_OPTIONS_INIT;
  for (int32_t s = 1; s < r->chain->stages; ++s) first[s - 1] = s + 1;
  options.schedule = gsel_str_from(r->chain->schedule);
  options.microbatches = r->chain->microbatches;
  options.microbatch_samples = 1;
  if (r->chain->stages % r->chain->ranks == 0) options.chunks = r->chain->stages / r->chain->ranks;
  options.first_layers = first;
  options.n_first_layers = r->chain->stages - 1;
  if (r->chain->ranks == 1) options.chunks = options.n_first_layers = 0; /* all layers are one stage */
  check(gsel_pipeline_create(comm, model, &options, &pipeline, &err), &err);
  return pipeline;
}

static int n_own_instructions(const gsel_program* program) {
  int n = 0;
  gsel_instr instr;
  for (int32_t i = 0; i < gsel_program_length(program); ++i)
    n += !gsel_program_instr(program, i, &instr, NULL) && instr.kind != GSEL_INSTR_SEND &&
         instr.kind != GSEL_INSTR_RECV && instr.kind != GSEL_INSTR_LOSS_ALLREDUCE;
  return n;
}

static void* run_rank(void* argument) {
  struct rank* r = argument;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
  prctl(PR_SET_TIMERSLACK, 1L);
  options.rank = r->rank;
  options.world_size = r->chain->ranks;
  options.id = &r->id;
  check(gsel_comm_init(&options, &comm, &err), &err);
  gsel_model* model = describe(r);
  gsel_pipeline* pipeline = open_pipeline(r, comm, model);
  const gsel_program* program = gsel_pipeline_program(pipeline);
  for (int i = -1; i < r->runs; ++i) {
    if (!r->chain->in_a_row) check(gsel_barrier(comm, &err), &err);
    r->begin = 0;
    check(gsel_pipeline_run(pipeline, GSEL_FORWARD_BACKWARD, &report, &err), &err);
    if (i < 0) continue;
    r->busy[i] = report.busy_s;
    r->results[i] = (struct chain_result){r->begin, 0, r->end, report.overhead_s / n_own_instructions(program),
                                          report.elapsed_s / gsel_program_length(program)};
  }
  gsel_pipeline_free(pipeline);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return NULL;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

void chain_run(const struct chain* chain, int runs, struct chain_result* results) {
  struct rank ranks[CHAIN_MOST_RANKS];
  pthread_t threads[CHAIN_MOST_RANKS];
  gsel_error* err = NULL;
  gsel_unique_id id;
  check(gsel_unique_id_create(&id, &err), &err);
  for (int r = 0; r < chain->ranks; ++r) {
    ranks[r] = (struct rank){.chain = chain, .id = id, .rank = r, .runs = runs};
    ranks[r].results = calloc((size_t)runs, sizeof *results);
    ranks[r].busy = calloc((size_t)runs, sizeof(double));
    if (pthread_create(&threads[r], NULL, run_rank, &ranks[r])) exit(1);
  }
  for (int r = 0; r < chain->ranks; ++r) pthread_join(threads[r], NULL);
  double before = 0;
  for (int i = 0; i < runs; ++i) {
    double begin = ranks[0].results[i].makespan_s, end = 0;
    struct chain_result* result = &results[i];
    memset(result, 0, sizeof *result);
    for (int r = 0; r < chain->ranks; ++r) {
      const struct chain_result* own = &ranks[r].results[i];
      if (own->makespan_s < begin) begin = own->makespan_s;
      end = larger(end, own->busiest_s);
      result->busiest_s = larger(result->busiest_s, ranks[r].busy[i]);
      result->overhead_s = larger(result->overhead_s, own->overhead_s);
      result->instruction_s = larger(result->instruction_s, own->instruction_s);
    }
    result->makespan_s = end - begin;
    result->period_s = i ? end - before : 0;
    before = end;
  }
  for (int r = 0; r < chain->ranks; ++r) free(ranks[r].results), free(ranks[r].busy);
}
