/* nets/scenario.c: see scenario.h. */
#include "nets/scenario.h"

#include <errno.h>
#include <unistd.h>

#include "nets/shim.h"
#include "support/step_model.h"

enum { SMALL = 3, SLOTS = 800, STAGED = 40000, LARGE = 300000 };

/* A call as the rank: what fails in it is the rank's. Leaves the part with the first error. */
#define STEP_WITH(spared, call)                                  \
  do {                                                           \
    gsel_error* err = NULL;                                      \
    shim_enter(p->run.rank);                                     \
    shim_spare_memory(spared);                                   \
    const gsel_status step_status = (call);                      \
    shim_spare_memory(0);                                        \
    shim_leave();                                                \
    if (step_status) return failed(p, step_status, err, #call);  \
    if (err) return wrong(p, "an error beside GSEL_OK: " #call); \
  } while (0)
#define STEP(call) STEP_WITH(0, call)
/* The same with JSON in it: the trees of nlohmann-json allocate in their destructors, which ends the process where
 * there is no memory, and lose memory when they are made. */
#define TREE_STEP(call) STEP_WITH(1, call)
#define RIGHT(condition) \
  if (!(condition)) return wrong(p, #condition)
/* A call that cannot fail. */
#define QUIET(call)          \
  do {                       \
    shim_enter(p->run.rank); \
    call;                    \
    shim_leave();            \
  } while (0)

static gsel_status failed(part* p, gsel_status status, gsel_error* err, const char* call) {
  char text[300] = "no error object";
  if (err) gsel_error_format(err, text, sizeof text);
  p->end->status = gsel_error_code(err) == status ? status : 1;
  p->end->about = gsel_error_rank(err);
  snprintf(p->end->text, sizeof p->end->text, "%.60s: %s: %s", call, gsel_status_name(status), text);
  gsel_error_free(err);
  return status;
}

static gsel_status wrong(part* p, const char* what) {
  p->end->status = 1;
  p->end->about = -1;
  snprintf(p->end->text, sizeof p->end->text, "wrong: %s", what);
  return 1;
}

/* ---- communicators ---- */

typedef struct held {
  gsel_comm *comm, *other;
  gsel_request* request;
  gsel_trace* trace;
  float *send, *recv, *shared;
} held;

static void fill(const part* p, float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = (float)(p->run.rank + (int32_t)(i % 7));
}

static gsel_status reduce_right(part* p, gsel_comm* comm, float* send, float* recv, size_t n) {
  const int32_t ranks = p->run.world_size;
  fill(p, send, n);
  STEP(gsel_allreduce(comm, send, recv, n, GSEL_F32, GSEL_SUM, &err));
  for (size_t i = 0; i < n; ++i) RIGHT(recv[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (int32_t)(i % 7)));
  return GSEL_OK;
}

static gsel_status ring(part* p, held* h, size_t n) {
  const int32_t ranks = p->run.world_size, to = (p->run.rank + 1) % ranks, from = (p->run.rank + ranks - 1) % ranks;
  fill(p, h->send, n);
  STEP(gsel_sendrecv(h->comm, h->send, n, to, h->recv, n, from, GSEL_F32, &err));
  for (size_t i = 0; i < n; ++i) RIGHT(h->recv[i] == (float)(from + (int32_t)(i % 7)));
  return GSEL_OK;
}

static gsel_status gather_right(part* p, held* h, size_t n) {
  fill(p, h->send, n);
  STEP(gsel_allgather(h->comm, h->send, h->recv, n, GSEL_F32, &err));
  for (int32_t q = 0; q < p->run.world_size; ++q)
    for (size_t i = 0; i < n; ++i) RIGHT(h->recv[(size_t)q * n + i] == (float)(q + (int32_t)(i % 7)));
  return GSEL_OK;
}

static gsel_status by_request(part* p, held* h) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_MAX;
  call.send = h->send;
  call.recv = h->recv;
  call.count = STAGED;
  fill(p, h->send, STAGED);
  STEP(gsel_comm_start(h->comm, &call, &h->request, &err));
  STEP(gsel_request_wait(h->request, &err));
  for (size_t i = 0; i < STAGED; ++i) RIGHT(h->recv[i] == (float)(p->run.world_size - 1 + (int32_t)(i % 7)));
  return GSEL_OK;
}

static gsel_status in_another(part* p, held* h, gsel_comm* other) {
  const gsel_status status = reduce_right(p, other, h->send, h->recv, SLOTS);
  QUIET(gsel_comm_free(other));
  h->other = NULL;
  return status;
}

/* Memory that was given back and is given out again holds zeros. */
static gsel_status memory_again(part* p, held* h) {
  STEP(gsel_mem_free(h->comm, h->shared, &err));
  STEP(gsel_mem_alloc(h->comm, sizeof(float) * LARGE, (void**)&h->shared, &err));
  for (size_t i = 0; i < LARGE; ++i) RIGHT(h->shared[i] == 0);
  return GSEL_OK;
}

static gsel_status calls(part* p, held* h) {
  gsel_status status;
  STEP(gsel_mem_alloc(h->comm, sizeof(float) * LARGE, (void**)&h->shared, &err));
  if ((status = reduce_right(p, h->comm, h->send, h->recv, SMALL))) return status;
  if ((status = reduce_right(p, h->comm, h->send, h->recv, SLOTS))) return status;
  if ((status = reduce_right(p, h->comm, h->send, h->recv, STAGED))) return status;
  if ((status = reduce_right(p, h->comm, h->shared, h->shared, STAGED))) return status;
  if ((status = gather_right(p, h, LARGE))) return status;
  if ((status = ring(p, h, SMALL))) return status;
  if ((status = ring(p, h, LARGE))) return status;
  if ((status = by_request(p, h))) return status;
  if ((status = memory_again(p, h))) return status;
  TREE_STEP(gsel_comm_trace(h->comm, &h->trace, &err));
  return GSEL_OK;
}

static gsel_status more_communicators(part* p, held* h) {
  gsel_status status;
  STEP(gsel_comm_split(h->comm, 0, p->run.rank, &h->other, &err));
  if ((status = in_another(p, h, h->other))) return status;
  STEP(gsel_comm_dup(h->comm, &h->other, &err));
  if ((status = in_another(p, h, h->other))) return status;
  if (p->run.rank == 0) QUIET(gsel_comm_abort(h->comm, gsel_str_from("to be shrunk")));
  STEP(gsel_comm_shrink(h->comm, &h->other, &err));
  if (p->with_fault && gsel_comm_world_size(h->other) < p->run.world_size) return GSEL_OK;
  RIGHT(gsel_comm_world_size(h->other) == p->run.world_size);
  return in_another(p, h, h->other);
}

void scenario_comm(part* p) {
  held h;
  memset(&h, 0, sizeof h);
  h.send = (float*)calloc(LARGE, sizeof(float));
  h.recv = (float*)calloc((size_t)LARGE * (size_t)p->run.world_size, sizeof(float));
  gsel_error* err = NULL;
  shim_enter(p->run.rank);
  const gsel_status status = rank_join(&p->run, &h.comm, &err);
  shim_leave();
  if (status)
    failed(p, status, err, "gsel_comm_init");
  else if (!calls(p, &h))
    more_communicators(p, &h);
  QUIET(gsel_request_free(h.request));
  QUIET(gsel_trace_free(h.trace));
  QUIET(gsel_comm_free(h.other));
  QUIET(gsel_comm_free(h.comm));
  free(h.send);
  free(h.recv);
}

/* ---- a trainer ---- */

static gsel_status open_trainer(part* p, const char* config, step_session* s) {
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  STEP(rank_join(&p->run, &s->comm, &err));
  TREE_STEP(gsel_config_parse(gsel_str_from(config), gsel_str_from("scenario.toml"), &s->config, &err));
  STEP(gsel_model_create(&s->model, &err));
  STEP(step_describe(s->model, &s->m, &err));
  options.config = s->config;
  options.data = step_data;
  options.data_user_data = &s->m;
  STEP(gsel_trainer_create(s->comm, s->model, &options, &s->trainer, &err));
  return GSEL_OK;
}

static gsel_status train(part* p, step_session* s) {
  float params[2 * STEP_WIDTH], trained[2 * STEP_WIDTH];
  gsel_str json;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  STEP(step_params(s->trainer, params, &err));
  for (int i = 0; i < 2; ++i) STEP_WITH(p->draws, gsel_trainer_step(s->trainer, &report, &err));
  RIGHT(report.step == 1);
  STEP(gsel_trainer_evaluate(s->trainer, 0, NULL, NULL, &report, &err));
  TREE_STEP(gsel_trainer_step_json(s->trainer, &json, &err));
  STEP(step_params(s->trainer, trained, &err));
  for (int i = 0; i < 2 * STEP_WIDTH; ++i) RIGHT(trained[i] != params[i]);
  return GSEL_OK;
}

void scenario_trainer(part* p) {
  char config[700], timeline[500] = "";
  step_session s;
  memset(&s, 0, sizeof s);
  if (p->draws) snprintf(timeline, sizeof timeline, "timeline = \"%s\"\n", p->folder);
  snprintf(config, sizeof config, STEP_SGD("0.5", "4", "microbatch = 1\n%s") STEP_ZERO("2"), timeline);
  if (!open_trainer(p, config, &s)) train(p, &s);
  QUIET(step_close(&s));
}

/* ---- files ---- */

typedef struct file_things {
  gsel_config* config;
  gsel_inventory* inventory;
  gsel_selection* selection;
  gsel_reservation* reservation;
  gsel_plugin_list* plugins;
} file_things;

static gsel_status use_files(part* p, file_things* t) {
  char path[600];
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  gsel_reserve_options options = GSEL_RESERVE_OPTIONS_INIT;
  snprintf(path, sizeof path, "%s/gsel.toml", p->folder);
  FILE* file = fopen(path, "w");
  RIGHT(file != NULL);
  fputs("[train]\nbatch = 8\n", file);
  fclose(file);
  TREE_STEP(gsel_config_load(gsel_str_from(path), &t->config, &err));
  RIGHT(!strcmp(gsel_config_get(t->config, gsel_str_from("train.batch")).data, "8"));
  snprintf(path, sizeof path, "%s/inventory/a100x8.json", getenv("GSEL_TEST_DATA"));
  TREE_STEP(gsel_inventory_load(gsel_str_from(path), &t->inventory, &err));
  resolve_options.inventory = t->inventory;
  resolve_options.flags = GSEL_RESOLVE_NO_ENV;
  resolve_options.devices = gsel_str_from("count:2");
  STEP(gsel_resolve(&resolve_options, &t->selection, &err));
  RIGHT(gsel_selection_device_count(t->selection) == 2);
  options.folder = gsel_str_from(p->folder);
  STEP(gsel_reserve(&resolve_options, &options, &t->reservation, &err));
  STEP(gsel_plugin_list_create(&t->plugins, &err));
  return GSEL_OK;
}

void scenario_files(part* p) {
  file_things t;
  memset(&t, 0, sizeof t);
  use_files(p, &t);
  QUIET(gsel_plugin_list_free(t.plugins));
  QUIET(gsel_reservation_free(t.reservation));
  QUIET(gsel_selection_free(t.selection));
  QUIET(gsel_inventory_free(t.inventory));
  QUIET(gsel_config_free(t.config));
}
