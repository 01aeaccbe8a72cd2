/* fake/cuda/graph_trial.h: a model whose layers work with kernels of the device alone, and its training with and
 * without graphs: y = x + w, z = y / 2 + v, loss = the sum of squares of z. What came of a training can be compared,
 * bit for bit. Of one file of a program. */
#ifndef GSEL_TESTS_GRAPH_TRIAL_H
#define GSEL_TESTS_GRAPH_TRIAL_H

#include <gsel/device.h>
#include <math.h>

#include "fake/cuda/program.h"
#include "support/check.h"

enum { WIDTH = 48, MOST_BATCH = 8, STEPS = 8, N_PARAMS = 2 };
enum { V_X, V_Y, V_Z, V_LOSS, V_WEIGHT };

/* ---- the driver ---- */

static gpu card;
static double* one;       /* on the device: the weight of each number of samples */
static uint64_t* key_log; /* on the device: the last key that the forward of "shift" has read */

static void enter(void) {
  cuda.push(card.context);
}
static void leave(void) {
  cuda.pop(&(void*){NULL});
}
static int copy_to(void* stream, void* to, const void* from, size_t bytes) {
  enter();
  const int failed = cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, stream);
  leave();
  return failed;
}
/* ---- kernels: those of the plugin, by its table, as a card has them ---- */

static const gsel_device_v1* kernels;
static void* kernels_ctx;

static void log_nothing(int32_t level, const char* component, const char* line) {
  (void)level, (void)component, (void)line;
}
static gsel_error* no_error(gsel_status code, const char* text) {
  (void)code;
  print_error("%s\n", text);
  return NULL;
}
/* The plugin looks for its driver once in a process, so not before the first trainer. */
static void open_kernels(void) {
  if (kernels) return;
  static const gsel_host_v1 host = {sizeof host, GSEL_PLUGIN_ABI_MINOR, log_nothing, no_error};
  char path[4096];
  snprintf(path, sizeof path, "%s/lib/gsel/plugins-1/cuda.so", getenv("GSEL_TEST_BIN"));
  void* file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const struct gsel_plugin_v1* plugin = file ? (const struct gsel_plugin_v1*)dlsym(file, "gsel_plugin_v1") : NULL;
  if (!plugin) fail_msg("%s", dlerror());
  kernels = (const gsel_device_v1*)plugin->table;
  gsel_device_options options = {.struct_size = sizeof options};
  assert_int_equal(kernels->open(&host, &options, &kernels_ctx, NULL), GSEL_OK);
}
static gsel_stream* imported(void* native) {
  static void* known[16];
  static gsel_stream* streams[16];
  int i = 0;
  while (i < 15 && streams[i] && known[i] != native) ++i;
  if (known[i] == native && streams[i]) return streams[i];
  kernels->stream_free(kernels_ctx, streams[i]);
  known[i] = native;
  kernels->stream_import(kernels_ctx, native, &streams[i], NULL);
  return streams[i];
}
static int scale(void* stream, void* memory, double factor, uint64_t n) {
  return kernels->scale(kernels_ctx, memory, GSEL_F32, factor, n, imported(stream), NULL);
}
static int add(void* stream, void* to, const void* from, uint64_t n) {
  return kernels->add(kernels_ctx, to, from, GSEL_F32, n, imported(stream), NULL);
}
static int sum_squares(void* stream, const void* from, uint64_t n, void* out) {
  return kernels->sum_squares(kernels_ctx, from, GSEL_F32, n, (double*)out, imported(stream), NULL);
}

/* ---- callbacks ---- */

static int n_calls;            /* of layers */
static gsel_layer_fn of_fault; /* in place of the forward of "shift" */
static int fault_from;         /* its call, from 0 */
static int n_forwards;

static gsel_status done(int failed) {
  ++n_calls;
  return failed ? GSEL_ERR_DEVICE : GSEL_OK;
}
static float* row(const gsel_tensor* t, int64_t i) {
  return (float*)t->data + i * WIDTH;
}
static int add_rows(const gsel_call* c, const gsel_tensor* to, const gsel_tensor* param) {
  int failed = 0;
  for (int64_t i = 0; i < c->n_samples && !failed; ++i) failed = add(c->stream, row(to, i), param->data, WIDTH);
  return failed;
}
/* The first row is copied, unless there is something to add to. */
static int sum_rows(const gsel_call* c) {
  int failed = 0;
  for (int64_t i = 0; i < c->n_samples && !failed; ++i)
    failed = i == 0 && !c->accumulate ? copy_to(c->stream, c->d_params[0].data, row(&c->d_outputs[0], i), WIDTH * 4)
                                      : add(c->stream, c->d_params[0].data, row(&c->d_outputs[0], i), WIDTH);
  return failed;
}
static gsel_status shift(const gsel_call* c, void* user) {
  if (of_fault && n_forwards++ >= fault_from) {
    const gsel_status status = of_fault(c, user);
    if (status) return status;
  }
  int failed = copy_to(c->stream, c->outputs[0].data, c->inputs[0].data, (size_t)c->outputs[0].n_elems * 4);
  if (!failed) failed = add_rows(c, &c->outputs[0], &c->params[0]);
  if (!failed) failed = copy_to(c->stream, key_log, c->device_rng_key ? c->device_rng_key : &c->rng_key, 8);
  return done(failed);
}
static gsel_status shift_weight(const gsel_call* c, void* user) {
  (void)user;
  return done(sum_rows(c));
}
static gsel_status halve(const gsel_call* c, void* user) {
  (void)user;
  int failed = copy_to(c->stream, c->outputs[0].data, c->inputs[0].data, (size_t)c->outputs[0].n_elems * 4);
  if (!failed) failed = scale(c->stream, c->outputs[0].data, 0.5, (uint64_t)c->outputs[0].n_elems);
  if (!failed) failed = add_rows(c, &c->outputs[0], &c->params[0]);
  return done(failed);
}
static gsel_status halve_input(const gsel_call* c, void* user) {
  (void)user;
  int failed = copy_to(c->stream, c->d_inputs[0].data, c->d_outputs[0].data, (size_t)c->d_inputs[0].n_elems * 4);
  if (!failed) failed = scale(c->stream, c->d_inputs[0].data, 0.5, (uint64_t)c->d_inputs[0].n_elems);
  return done(failed);
}
static gsel_status loss(const gsel_call* c, void* user) {
  (void)user;
  int failed = sum_squares(c->stream, c->inputs[0].data, (uint64_t)c->inputs[0].n_elems, c->outputs[0].data);
  if (!failed) failed = copy_to(c->stream, c->outputs[1].data, one + c->n_samples, 8);
  return done(failed);
}
static gsel_status loss_input(const gsel_call* c, void* user) {
  (void)user;
  int failed = copy_to(c->stream, c->d_inputs[0].data, c->inputs[0].data, (size_t)c->d_inputs[0].n_elems * 4);
  if (!failed) failed = scale(c->stream, c->d_inputs[0].data, 2, (uint64_t)c->d_inputs[0].n_elems);
  return done(failed);
}

static int64_t infinite_sample, last_sample; /* -1: none; of a micro-batch that begins with this one there are none */
static gsel_status fill(const gsel_data_request* r, void* user) {
  float values[MOST_BATCH * WIDTH];
  (void)user;
  if (r->sample_ids[0] == last_sample) return GSEL_NO_SAMPLES;
  for (int64_t s = 0; s < r->n_samples; ++s)
    for (int64_t i = 0; i < WIDTH; ++i)
      values[s * WIDTH + i] = r->sample_ids[s] == infinite_sample
                                  ? INFINITY
                                  : (float)((r->sample_ids[s] * 7 + i * 13 + r->microbatch) % 17) / 8.0f - 1.0f;
  return copy_to(r->stream, r->dst.data, values, (size_t)r->dst.n_elems * 4) ? GSEL_ERR_DEVICE : GSEL_OK;
}

/* ---- the model ---- */

static uint32_t flags_of_v; /* GSEL_PARAM_*; with them, another learning rate */

static gsel_status describe(gsel_model* model, gsel_error** err) {
  static const int64_t width[] = {WIDTH};
  static const int32_t x = V_X, y = V_Y, z = V_Z, losses[] = {V_LOSS, V_WEIGHT}, params[] = {0, 1};
  static const char* const names[] = {"x", "y", "z", "loss", "weight"};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < N_PARAMS && !status; ++p) {
    gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
    param.name = gsel_str_from(p ? "v" : "w");
    param.dims = width;
    param.n_dims = 1;
    param.init = GSEL_INIT_NORMAL;
    param.init_scale = 1;
    if (p) param.flags = flags_of_v;
    if (p && flags_of_v) param.lr_factor = 0.5;
    status = gsel_model_add_param(model, &param, NULL, err);
  }
  for (int v = V_X; v <= V_WEIGHT && !status; ++v) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = gsel_str_from(names[v]);
    value.dtype = v <= V_Z ? GSEL_F32 : GSEL_F64;
    value.dims = width;
    value.n_dims = v <= V_Z;
    value.flags = v == V_X ? GSEL_VALUE_INPUT : v > V_Z ? GSEL_VALUE_SCALAR : 0;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("shift");
  layer.inputs = &x, layer.outputs = &y, layer.params = &params[0];
  layer.n_inputs = layer.n_outputs = layer.n_params = 1;
  layer.forward = shift;
  layer.backward_weight = shift_weight;
  if (!status) status = gsel_model_add_layer(model, &layer, NULL, err);
  layer.name = gsel_str_from("halve");
  layer.inputs = &y, layer.outputs = &z, layer.params = &params[1];
  layer.forward = halve;
  layer.backward_input = halve_input;
  if (!status) status = gsel_model_add_layer(model, &layer, NULL, err);
  gsel_layer_options last = GSEL_LAYER_OPTIONS_INIT;
  last.name = gsel_str_from("loss");
  last.inputs = &z, last.n_inputs = 1;
  last.outputs = losses, last.n_outputs = 2;
  last.flags = GSEL_LAYER_LOSS;
  last.forward = loss;
  last.backward_input = loss_input;
  return status ? status : gsel_model_add_layer(model, &last, NULL, err);
}

/* ---- a training ---- */

typedef struct outcome {
  gsel_step_report steps[STEPS];
  double evaluated[STEPS];
  uint64_t keys[STEPS];
  float params[STEPS][N_PARAMS][WIDTH], gradients[STEPS][N_PARAMS][WIDTH];
  gsel_comm_count comm[STEPS][GSEL_INSTR_OVERFLOW + 1]; /* so far, on the data axis, by kind */
  int calls;                                            /* of layers, in steps */
  int launches;        /* of graphs: as the double counts them, on a card as the report does */
  int alive;           /* graphs that are left, on the double */
  int allocations;     /* from the fourth step on, on the double */
  char no_graphs[512]; /* of the last step's JSON, from its key on */
  uint64_t arena[2];   /* "values and windows": forecast and peak */
} outcome;

typedef struct training {
  const char *config, *graph, *device; /* NULL: the first */
  int evaluates, reads, sets_rate, pulls;
  const gsel_optimizer_options* optimizer;
  gsel_comm* comm; /* NULL: none, and one rank */
} training;

static gsel_trainer* open_trainer(const training* t, gsel_model** model, gsel_status* status, gsel_error** err) {
  char text[1024];
  gsel_config* config = NULL;
  gsel_trainer* trainer = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  open_kernels();
  snprintf(text, sizeof text, "%s%s%s%sgraph = \"%s\"\n", t->config, t->comm ? "" : "device = \"",
           t->comm     ? ""
           : t->device ? t->device
                       : first_device(),
           t->comm ? "" : "\"\n", t->graph);
  *status = gsel_config_parse(gsel_str_from(text), gsel_str_from("graph.toml"), &config, err);
  if (!*status) *status = gsel_model_create(model, err);
  if (!*status) *status = describe(*model, err);
  options.config = config;
  options.data = fill;
  options.optimizer = t->optimizer;
  if (!*status) *status = gsel_trainer_create(t->comm, *model, &options, &trainer, err);
  gsel_config_free(config);
  return trainer;
}

static gsel_status pull(gsel_trainer* trainer, gsel_error** err) {
  for (;;) {
    static const gsel_layer_fn forwards[] = {shift, halve, loss}, inputs[] = {NULL, halve_input, loss_input};
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(trainer, &work, err);
    if (status || work.kind == GSEL_WORK_DONE) return status;
    const int32_t l = work.call ? work.call->layer : 0;
    const gsel_status did = work.kind == GSEL_INPUT            ? fill(work.input, NULL)
                            : work.kind == GSEL_FORWARD        ? forwards[l](work.call, NULL)
                            : work.kind == GSEL_BACKWARD_INPUT ? inputs[l](work.call, NULL)
                                                               : shift_weight(work.call, NULL);
    status = gsel_trainer_complete(trainer, work.ticket, did, gsel_str_from(""), err);
    if (status) return status;
  }
}

static int counted(const char* name) {
  return is_on_card() ? 0 : CUDA(name, void)();
}
static int reported_launches(gsel_trainer* trainer) {
  gsel_str json = {0};
  if (gsel_trainer_step_json(trainer, &json, NULL)) return -1;
  const char* at = strstr(json.data, "\"graph_launches\":");
  return at ? atoi(at + strlen("\"graph_launches\":")) : -1;
}

static gsel_status run_step(const training* t, gsel_trainer* trainer, int i, outcome* out, gsel_error** err) {
  gsel_status status = GSEL_OK;
  const int before = counted("fake_cuda_graph_launches"), calls = n_calls;
  if (t->sets_rate) status = gsel_trainer_set_learning_rate(trainer, 0.5 / (i + 1), err);
  const int allocated = counted("fake_cuda_allocations");
  out->steps[i] = (gsel_step_report)GSEL_STEP_REPORT_INIT;
  if (!status && !t->pulls) status = gsel_trainer_step(trainer, &out->steps[i], err);
  if (!status && t->pulls) status = pull(trainer, err);
  if (!status && t->pulls) status = gsel_trainer_report(trainer, &out->steps[i], err);
  if (i >= 3) out->allocations += counted("fake_cuda_allocations") - allocated;
  out->calls += n_calls - calls;
  copy(&card, &out->keys[i], key_log, 8);
  finish(&card);
  out->launches += is_on_card() && !status ? reported_launches(trainer) : counted("fake_cuda_graph_launches") - before;
  for (int k = 1; k <= GSEL_INSTR_OVERFLOW && t->comm && !status; ++k) {
    out->comm[i][k] = (gsel_comm_count)GSEL_COMM_COUNT_INIT;
    status = gsel_trainer_counts(trainer, k, GSEL_AXIS_DATA, &out->comm[i][k], err);
  }
  gsel_step_report evaluated = GSEL_STEP_REPORT_INIT;
  if (!status && t->evaluates) status = gsel_trainer_evaluate(trainer, 1000 + i, NULL, NULL, &evaluated, err);
  out->evaluated[i] = evaluated.loss_sum;
  for (int p = 0; p < N_PARAMS && !status && (t->reads || i == STEPS - 1); ++p) {
    status = gsel_trainer_read_param(trainer, p, out->params[i][p], sizeof out->params[i][p], err);
    if (!status && !t->optimizer)
      status = gsel_trainer_read_gradient(trainer, p, out->gradients[i][p], sizeof out->gradients[i][p], err);
  }
  return status;
}

static gsel_status train(const training* t, outcome* out, gsel_error** err) {
  gsel_model* model = NULL;
  gsel_status status = GSEL_OK;
  memset(out, 0, sizeof *out);
  n_forwards = 0;
  gsel_trainer* trainer = open_trainer(t, &model, &status, err);
  for (int i = 0; i < STEPS && !status; ++i) status = run_step(t, trainer, i, out, err);
  gsel_str json = {0};
  if (!status) status = gsel_trainer_step_json(trainer, &json, err);
  const char* at = json.data ? strstr(json.data, "\"no_graphs\"") : NULL;
  if (at) snprintf(out->no_graphs, sizeof out->no_graphs, "%s", at);
  for (int32_t i = 0; trainer && i < gsel_trainer_memory_count(trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    gsel_trainer_memory(trainer, i, &part, NULL);
    if (!strcmp(part.name, "values and windows")) out->arena[0] = part.forecast_bytes, out->arena[1] = part.peak_bytes;
  }
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  out->alive = counted("fake_cuda_graphs");
  return status;
}
static outcome trained(training t, const char* graph) {
  static outcome out;
  gsel_error* err = NULL;
  t.graph = graph;
  if (train(&t, &out, &err)) fail_msg("%s: %s", t.config, gsel_error_message(err).data);
  return out;
}

static void same_numbers(const char* what, int step, const void* expected, const void* got, size_t bytes) {
  if (memcmp(expected, got, bytes) != 0) fail_msg("step %d: %s differ", step, what);
}
static void same(const outcome* plain, const outcome* graph) {
  for (int i = 0; i < STEPS; ++i) {
    const gsel_step_report *p = &plain->steps[i], *g = &graph->steps[i];
#define SAME(field) same_numbers(#field, i, &p->field, &g->field, sizeof p->field)
    SAME(loss), SAME(loss_sum), SAME(weight), SAME(gradient_norm), SAME(skipped), SAME(learning_rate);
    SAME(loss_scale), SAME(non_finite_layer), SAME(non_finite_param), SAME(non_finite_microbatch);
    SAME(non_finite_value);
    same_numbers("keys", i, &plain->keys[i], &graph->keys[i], sizeof plain->keys[i]);
    same_numbers("evaluations", i, &plain->evaluated[i], &graph->evaluated[i], sizeof(double));
    same_numbers("parameters", i, plain->params[i], graph->params[i], sizeof plain->params[i]);
    same_numbers("gradients", i, plain->gradients[i], graph->gradients[i], sizeof plain->gradients[i]);
  }
}

#endif
