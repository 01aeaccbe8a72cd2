/* Callbacks of a trainer on devices that do what a callback may not: wait for the device, allocate, free what they were
 * lent, leave work behind on another stream or for later, touch memory of an earlier call, give a kernel memory of the
 * host. The double finds each and names layer and callback, and the step is an error with that text. */
#include "fake/cuda/program.h"
#include "support/check.h"

enum { WIDTH = 64, BATCH = 4, BYTES = WIDTH * BATCH * 4 };
enum { V_X, V_Y, V_LOSS, V_WEIGHT };

/* ---- the model, with work on devices alone: y = x, loss = 1, the gradient of w is the first row of y ---- */

typedef struct rank_state {
  gpu g;        /* with a stream of the program's own */
  double* ones; /* page-locked */
  void *event, *other_event;
  gsel_layer_fn copies, loses; /* forwards with a fault; NULL: none */
  /* What a fault keeps of a call. */
  const void* kept;
  gsel_call late;
  void *late_to, *late_from;
} rank_state;
static __thread rank_state* own; /* of the rank that this thread is */

static void (*callback_begin)(const char* name, void* stream);
static void (*callback_lend)(const void* memory, size_t bytes);
static void (*callback_end)(void);
static int (*event_record)(void* event, void* stream);
static int (*stream_wait_event)(void* stream, void* event, unsigned flags);

static void enter(void) {
  cuda.push(own->g.context);
}
static void leave(void) {
  cuda.pop(&(void*){NULL});
}
static void enqueue(void* to, const void* from, size_t bytes, void* stream) {
  enter();
  cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, stream);
  leave();
}

static gsel_status copy_forward(const gsel_call* c, void* user) {
  (void)user;
  enqueue(c->outputs[0].data, c->inputs[0].data, (size_t)c->outputs[0].n_elems * 4, c->stream);
  return GSEL_OK;
}
static gsel_status copy_backward(const gsel_call* c, void* user) {
  (void)user;
  if (!c->accumulate) enqueue(c->d_params[0].data, c->d_outputs[0].data, WIDTH * 4, c->stream);
  return GSEL_OK;
}
static gsel_status loss_forward(const gsel_call* c, void* user) {
  (void)user;
  for (int i = 0; i < 2; ++i) enqueue(c->outputs[i].data, own->ones, 8, c->stream);
  return GSEL_OK;
}
static gsel_status loss_backward(const gsel_call* c, void* user) {
  (void)user;
  enqueue(c->d_inputs[0].data, c->inputs[0].data, (size_t)c->d_inputs[0].n_elems * 4, c->stream);
  return GSEL_OK;
}

/* ---- what the double is told ---- */

static void lend(const gsel_tensor* tensors, int32_t n) {
  for (int32_t i = 0; i < n; ++i)
    callback_lend(tensors[i].data, (size_t)tensors[i].n_elems * gsel_dtype_bytes(tensors[i].dtype));
}
static gsel_status watched_data(const gsel_data_request* r, void* user) {
  static const float zeros[WIDTH * BATCH];
  (void)user;
  callback_begin("input \"x\"", r->stream);
  lend(&r->dst, 1);
  enqueue(r->dst.data, zeros, (size_t)r->dst.n_elems * 4, r->stream);
  callback_end();
  return GSEL_OK;
}
static gsel_status watched(const char* name, gsel_layer_fn kernel, const gsel_call* c, int is_forward, int has_inputs,
                           int has_params) {
  callback_begin(name, c->stream);
  lend(c->params, c->n_params);
  lend(c->inputs, c->n_inputs);
  lend(c->outputs, c->n_outputs);
  if (!is_forward) lend(c->d_outputs, c->n_outputs);
  if (has_inputs) lend(c->d_inputs, c->n_inputs);
  if (has_params) lend(c->d_params, c->n_params);
  const gsel_status status = kernel(c, NULL);
  callback_end();
  return status;
}
/* A thread of the program, which a callback has left its work to. */
static void* late_thread(void* state) {
  own = (rank_state*)state;
  enqueue(own->late_to, own->late_from, BYTES, own->late.stream);
  return NULL;
}
static void work_late(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, late_thread, own);
  pthread_join(thread, NULL);
  own->late_to = NULL;
}
static gsel_status watched_copy_forward(const gsel_call* c, void* user) {
  (void)user;
  const gsel_status status = watched("layer \"copy\" forward", own->copies ? own->copies : copy_forward, c, 1, 0, 0);
  if (own->late_to) work_late();
  return status;
}
static gsel_status watched_copy_backward(const gsel_call* c, void* user) {
  (void)user;
  return watched("layer \"copy\" backward_weight", copy_backward, c, 0, 0, 1);
}
static gsel_status watched_loss_forward(const gsel_call* c, void* user) {
  (void)user;
  return watched("layer \"loss\" forward", own->loses ? own->loses : loss_forward, c, 1, 0, 0);
}
static gsel_status watched_loss_backward(const gsel_call* c, void* user) {
  (void)user;
  return watched("layer \"loss\" backward_input", loss_backward, c, 0, 1, 0);
}

/* ---- a rank ---- */

static gsel_status describe(gsel_model* model, gsel_error** err) {
  static const int64_t width[] = {WIDTH};
  static const int32_t x = V_X, y = V_Y, losses[] = {V_LOSS, V_WEIGHT}, w = 0;
  gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
  param.name = gsel_str_from("w");
  param.dims = width;
  param.n_dims = 1;
  param.init = GSEL_INIT_ZEROS;
  gsel_status status = gsel_model_add_param(model, &param, NULL, err);
  for (int v = V_X; v <= V_WEIGHT && !status; ++v) {
    static const char* const names[] = {"x", "y", "loss", "weight"};
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = gsel_str_from(names[v]);
    value.dtype = v <= V_Y ? GSEL_F32 : GSEL_F64;
    value.dims = width;
    value.n_dims = v <= V_Y;
    value.flags = v == V_X ? GSEL_VALUE_INPUT : v > V_Y ? GSEL_VALUE_SCALAR : 0;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  gsel_layer_options copy_layer = GSEL_LAYER_OPTIONS_INIT, loss = GSEL_LAYER_OPTIONS_INIT;
  copy_layer.name = gsel_str_from("copy");
  copy_layer.inputs = &x, copy_layer.n_inputs = 1;
  copy_layer.outputs = &y, copy_layer.n_outputs = 1;
  copy_layer.params = &w, copy_layer.n_params = 1;
  copy_layer.forward = watched_copy_forward;
  copy_layer.backward_weight = watched_copy_backward;
  if (!status) status = gsel_model_add_layer(model, &copy_layer, NULL, err);
  loss.name = gsel_str_from("loss");
  loss.inputs = &y, loss.n_inputs = 1;
  loss.outputs = losses, loss.n_outputs = 2;
  loss.flags = GSEL_LAYER_LOSS;
  loss.forward = watched_loss_forward;
  loss.backward_input = watched_loss_backward;
  return status ? status : gsel_model_add_layer(model, &loss, NULL, err);
}

/* ---- faults ---- */

static gsel_status waits_for_its_stream(const gsel_call* c, void* user) {
  copy_forward(c, user);
  enter();
  cuda.synchronize(c->stream);
  leave();
  return GSEL_OK;
}
static gsel_status waits_for_an_event(const gsel_call* c, void* user) {
  copy_forward(c, user);
  enter();
  event_record(own->event, c->stream);
  CUDA("cuEventSynchronize", void*)(own->event);
  leave();
  return GSEL_OK;
}
static gsel_status allocates(const gsel_call* c, void* user) {
  alloc(&own->g, 64);
  return copy_forward(c, user);
}
static gsel_status frees_its_output(const gsel_call* c, void* user) {
  copy_forward(c, user);
  enter();
  CUDA("cuMemFree_v2", uintptr_t)((uintptr_t)c->outputs[0].data);
  leave();
  return GSEL_OK;
}
/* The program's stream waits for that of the call, and that of the call for the program's. */
static gsel_status on_its_own_stream(const gsel_call* c, int joins) {
  enter();
  event_record(own->event, c->stream);
  stream_wait_event(own->g.stream, own->event, 0);
  leave();
  enqueue(c->outputs[0].data, c->inputs[0].data, (size_t)c->outputs[0].n_elems * 4, own->g.stream);
  enter();
  event_record(own->other_event, own->g.stream);
  if (joins) stream_wait_event(c->stream, own->other_event, 0);
  leave();
  return GSEL_OK;
}
static gsel_status works_on_its_own_stream(const gsel_call* c, void* user) {
  (void)user;
  return on_its_own_stream(c, 1);
}
static gsel_status leaves_its_own_stream(const gsel_call* c, void* user) {
  (void)user;
  return on_its_own_stream(c, 0);
}
static gsel_status begins_too_early(const gsel_call* c, void* user) {
  (void)user;
  enqueue(c->outputs[0].data, c->inputs[0].data, (size_t)c->outputs[0].n_elems * 4, own->g.stream);
  enter();
  event_record(own->event, own->g.stream);
  stream_wait_event(c->stream, own->event, 0);
  leave();
  return GSEL_OK;
}
static gsel_status returns_before_it_enqueues(const gsel_call* c, void* user) {
  (void)user;
  own->late = *c;
  own->late_to = c->outputs[0].data;
  own->late_from = c->inputs[0].data;
  return GSEL_OK;
}
static gsel_status keeps_its_parameter(const gsel_call* c, void* user) {
  own->kept = c->params[0].data;
  return copy_forward(c, user);
}
static gsel_status reads_a_kept_parameter(const gsel_call* c, void* user) {
  if (own->kept) enqueue(c->inputs[0].data, own->kept, 4, c->stream);
  return loss_forward(c, user);
}
static gsel_status gives_a_kernel_host_memory(const gsel_call* c, void* user) {
  static float on_host[WIDTH];
  void *kernel = NULL, *memory = on_host;
  double factor = 2;
  uint64_t n = WIDTH;
  void* params[] = {&memory, &factor, &n};
  enter();
  CUDA("cuModuleGetFunction", void**, void*, const char*)(&kernel, NULL, "gsel_scale_f32");
  CUDA("cuLaunchKernel", void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
       void**)
  (kernel, 1, 1, 1, 32, 1, 1, 0, c->stream, params, NULL);
  leave();
  return copy_forward(c, user);
}

typedef struct fault {
  const char* name;
  gsel_layer_fn copies, loses;
  const char* text; /* NULL: there is nothing to find */
} fault;
static const fault kFaults[] = {
    {"none", NULL, NULL, NULL},
    {"works on its own stream", works_on_its_own_stream, NULL, NULL},
    {"waits for its stream", waits_for_its_stream, NULL, "layer \"copy\" forward calls cuStreamSynchronize"},
    {"waits for an event", waits_for_an_event, NULL, "layer \"copy\" forward calls cuEventSynchronize"},
    {"allocates", allocates, NULL, "layer \"copy\" forward calls cuMemAlloc"},
    {"frees its output", frees_its_output, NULL, "layer \"copy\" forward frees allocation "},
    {"leaves its own stream", leaves_its_own_stream, NULL,
     "layer \"copy\" forward returns and its stream does not wait for a copy of 1024 bytes"},
    {"begins too early", begins_too_early, NULL, "and a copy of 1024 bytes of layer \"copy\" forward on stream "},
    {"returns before it enqueues", returns_before_it_enqueues, NULL,
     "touches memory that was lent to layer \"copy\" forward, which has returned"},
    {"reads a kept parameter", keeps_its_parameter, reads_a_kept_parameter,
     "a copy of 4 bytes of layer \"loss\" forward on stream "},
    {"gives a kernel memory of the host", gives_a_kernel_host_memory, NULL,
     "gsel_scale_f32 of layer \"copy\" forward is given memory of the host"},
};
/* ---- training ---- */

static void find_names(void) {
  *(void**)&callback_begin = dlsym(cuda.library, "fake_cuda_callback_begin");
  *(void**)&callback_lend = dlsym(cuda.library, "fake_cuda_callback_lend");
  *(void**)&callback_end = dlsym(cuda.library, "fake_cuda_callback_end");
  *(void**)&event_record = dlsym(cuda.library, "cuEventRecord");
  *(void**)&stream_wait_event = dlsym(cuda.library, "cuStreamWaitEvent");
}

static void prepare(rank_state* s, int rank) {
  s->g = open_gpu(rank);
  own = s;
  enter();
  CUDA("cuMemHostAlloc", void**, size_t, unsigned)((void**)&s->ones, 8, 0);
  CUDA("cuEventCreate", void**, unsigned)(&s->event, 2);
  CUDA("cuEventCreate", void**, unsigned)(&s->other_event, 2);
  leave();
  *s->ones = 1;
}

/* Rank 1 has the fault. */
static void train(rank_run* run) {
  const fault* f = (const fault*)run->user;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_comm* comm = NULL;
  gsel_config* config = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_error* err = NULL;
  rank_state state = {0};
  load_doubles("fake_libnccl.so");
  find_names();
  prepare(&state, run->rank);
  if (run->rank == 1) state.copies = f->copies, state.loses = f->loses;
  run->timeout_s = 20;
  rank_ok(run, join_on(run, "nccl", run->rank, &comm, &err), err);
  rank_ok(run,
          gsel_config_parse(gsel_str_from("[train]\nbatch = 8\noptimizer = \"sgd\"\n"), gsel_str_from("f.toml"),
                            &config, &err),
          err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, describe(model, &err), err);
  options.config = config;
  options.data = watched_data;
  gsel_status status = gsel_trainer_create(comm, model, &options, &trainer, &err); /* rank 1 may be ahead already */
  for (int i = 0; i < 3 && !status; ++i) status = gsel_trainer_step(trainer, NULL, &err);
  char text[1024] = "";
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  if (run->rank == 1) fprintf(stderr, "  %s: %s\n", f->name, status ? text : "trains");
  rank_check(run, (status != GSEL_OK) == (f->text != NULL));
  rank_check(run, !f->text || strstr(text, f->text));
  int found = 0;
  for (int v = 0; v < cuda.violations(); ++v) found |= f->text && strstr(cuda.violation(v), f->text);
  rank_check(run, f->text ? found == run->rank : cuda.violations() == 0);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

/* A process for each rank: the double of one process tells all of its ranks. */
static void each_fault_is_found_and_named(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof kFaults / sizeof *kFaults; ++i) as_processes(2, train, (void*)(uintptr_t)&kFaults[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_fault_is_found_and_named),
  };
  return cmocka_run_group_tests_name("train_callbacks", tests, NULL, NULL);
}
