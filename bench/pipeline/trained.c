/* trained.c: see trained.h. */
#define _GNU_SOURCE
#include "trained.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "clock_check.h"

enum { WIDTH = 1024 };

struct rank {
  const struct trained* trained;
  gsel_unique_id id;
  int rank, steps;
  double end;   /* of the last callback */
  double* ends; /* [steps + 1] */
};

/* ---- kernels: gradients are ones, so that there is a norm ---- */

static void sleep_for(struct rank* r, double seconds) {
  const double end = now() + seconds;
  const struct timespec until = {(time_t)end, (long)(1e9 * (end - (double)(time_t)end))};
  if (seconds > 0) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
  r->end = now();
}

static void fill(const gsel_tensor* t, float value) {
  for (int64_t i = 0; i < t->n_elems; ++i) ((float*)t->data)[i] = value;
}

static gsel_status source(const gsel_call* call, void* user_data) {
  (void)user_data;
  fill(&call->outputs[0], 1);
  return GSEL_OK;
}
static gsel_status forward(const gsel_call* call, void* user_data) {
  struct rank* r = user_data;
  fill(&call->outputs[0], 1);
  sleep_for(r, r->trained->part_s);
  return GSEL_OK;
}
static gsel_status backward_input(const gsel_call* call, void* user_data) {
  struct rank* r = user_data;
  if (call->d_inputs[0].data) fill(&call->d_inputs[0], 1);
  sleep_for(r, r->trained->part_s);
  return GSEL_OK;
}
static gsel_status backward_weight(const gsel_call* call, void* user_data) {
  struct rank* r = user_data;
  fill(&call->d_params[0], 1);
  sleep_for(r, r->trained->part_s);
  return GSEL_OK;
}
static gsel_status source_weight(const gsel_call* call, void* user_data) {
  (void)user_data;
  fill(&call->d_params[0], 1);
  return GSEL_OK;
}
static gsel_status end_forward(const gsel_call* call, void* user_data) {
  (void)user_data;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = 1;
  return GSEL_OK;
}
static gsel_status end_backward(const gsel_call* call, void* user_data) {
  (void)user_data;
  fill(&call->d_inputs[0], 1);
  return GSEL_OK;
}

/* ---- the model: source, a layer for each stage, loss ---- */

static void add_value(gsel_model* model, const char* name, int scalar) {
  const int64_t width = WIDTH;
  gsel_error* err = NULL;
  gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
  value.name = gsel_str_from(name);
  value.dims = &width;
  value.n_dims = !scalar;
  value.dtype = scalar ? GSEL_F64 : GSEL_F32;
  value.flags = scalar ? GSEL_VALUE_SCALAR : 0;
  check(gsel_model_add_value(model, &value, NULL, &err), &err);
}

static void add_param(gsel_model* model, const char* name) {
  const int64_t width = WIDTH;
  gsel_error* err = NULL;
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from(name);
  param.dims = &width;
  param.n_dims = 1;
  check(gsel_model_add_param(model, &param, NULL, &err), &err);
}

static gsel_model* describe(struct rank* r) {
  const int n = r->trained->ranks;
  char name[24];
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  check(gsel_model_create(&model, &err), &err);
  for (int i = 0; i <= n; ++i) {
    snprintf(name, sizeof name, "x%d", i);
    add_value(model, name, 0);
    snprintf(name, sizeof name, "w%d", i);
    add_param(model, name);
  }
  add_value(model, "loss", 1);
  add_value(model, "weight", 1);
  for (int32_t l = 0; l <= n + 1; ++l) {
    const int32_t in = l - 1, out[] = {l, l + 1}, param = l;
    const int is_source = l == 0, is_loss = l == n + 1;
    gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
    snprintf(name, sizeof name, "layer%d", (int)l);
    layer.name = gsel_str_from(name);
    layer.inputs = &in;
    layer.n_inputs = !is_source;
    layer.outputs = out;
    layer.n_outputs = is_loss ? 2 : 1;
    layer.params = &param;
    layer.n_params = !is_loss;
    layer.flags = is_loss ? GSEL_LAYER_LOSS : 0;
    layer.forward = is_source ? source : is_loss ? end_forward : forward;
    layer.backward_input = is_source ? NULL : is_loss ? end_backward : backward_input;
    layer.backward_weight = is_source ? source_weight : is_loss ? NULL : backward_weight;
    layer.user_data = r;
    check(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  }
  return model;
}

static gsel_status no_data(const gsel_data_request* request, void* user_data) {
  (void)request, (void)user_data;
  return GSEL_OK;
}

/* ---- ranks ---- */

static gsel_config* configure(const struct trained* t) {
  char text[1024], cuts[256] = "";
  gsel_error* err = NULL;
  gsel_config* config = NULL;
  for (int s = 1; s < t->ranks; ++s)
    snprintf(cuts + strlen(cuts), sizeof cuts - strlen(cuts), "%slayer%d", s > 1 ? ", " : "", s + 1);
  snprintf(text, sizeof text,
           "[mesh]\npipeline = %d\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\ncuts = \"%s\"\n"
           "post_validate = \"%s\"\n[train]\noptimizer = \"adamw\"\nbatch = %d\nmicrobatches = %d\nclip_norm = %g\n",
           t->ranks, t->schedule, cuts, t->post_validate, t->microbatches, t->microbatches, t->clip_norm);
  check(gsel_config_parse(gsel_str_from(text), gsel_str_from("bench.toml"), &config, &err), &err);
  return config;
}

static void* run_rank(void* argument) {
  struct rank* r = argument;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT;
  gsel_trainer* trainer = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  prctl(PR_SET_TIMERSLACK, 1L);
  joining.rank = r->rank;
  joining.world_size = r->trained->ranks;
  joining.id = &r->id;
  check(gsel_comm_init(&joining, &comm, &err), &err);
  gsel_model* model = describe(r);
  gsel_config* config = configure(r->trained);
  options.config = config;
  options.data = no_data;
  check(gsel_trainer_create(comm, model, &options, &trainer, &err), &err);
  for (int i = 0; i <= r->steps; ++i) {
    check(gsel_trainer_step(trainer, NULL, &err), &err);
    r->ends[i] = r->end;
  }
  gsel_trainer_free(trainer);
  gsel_config_free(config);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return NULL;
}

void train_in_a_row(const struct trained* trained, int steps, double* periods_s) {
  struct rank ranks[CHAIN_MOST_RANKS];
  pthread_t threads[CHAIN_MOST_RANKS];
  gsel_error* err = NULL;
  gsel_unique_id id;
  check(gsel_unique_id_create(&id, &err), &err);
  for (int r = 0; r < trained->ranks; ++r) {
    ranks[r] = (struct rank){.trained = trained, .id = id, .rank = r, .steps = steps};
    ranks[r].ends = calloc((size_t)steps + 1, sizeof(double));
    if (!ranks[r].ends || pthread_create(&threads[r], NULL, run_rank, &ranks[r])) exit(1);
  }
  for (int r = 0; r < trained->ranks; ++r) pthread_join(threads[r], NULL);
  double before = 0;
  for (int i = 0; i <= steps; ++i) {
    double end = 0;
    for (int r = 0; r < trained->ranks; ++r)
      if (ranks[r].ends[i] > end) end = ranks[r].ends[i];
    if (i > 0) periods_s[i - 1] = end - before;
    before = end;
  }
  for (int r = 0; r < trained->ranks; ++r) free(ranks[r].ends);
}
