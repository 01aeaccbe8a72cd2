/* fake/cuda/on_device.h: puts any trial of tests/support on the double's devices: communicators that are joined have an
 * accelerator, one device for each rank, and callbacks, which were written for memory of the host, work on copies that
 * travel on the call's stream. Of one file of a program. */
#ifndef GSEL_TESTS_ON_DEVICE_H
#define GSEL_TESTS_ON_DEVICE_H

#include <stdatomic.h>

#include "fake/cuda/program.h"

static const char* on_transport; /* of communicators joined from here on; NULL: memory of the host */
static uint32_t on_flags;        /* GSEL_COMM_* of such communicators */
static int on_card = -1;         /* the device of every rank; -1: that of its number */
static __thread gpu own_gpu;     /* of the rank that this thread is */
static __thread int own_world;   /* ranks of its communicator */
static gsel_layer_fn of_device;  /* a forward that takes memory of the device itself */

/* ---- copies ---- */

/* For kernels with faults: a mirror has what lies this many bytes before and behind, and all that has changed goes
 * back, also what may only be read. */
static atomic_size_t mirror_margin;

enum { MOST_MIRRORS = 64 };
typedef struct mirrors {
  void* stream;
  int n;
  struct {
    void *device, *host;
    char* before; /* as it was copied; NULL without a margin */
    size_t bytes;
  } of[MOST_MIRRORS];
} mirrors;

static void mirror_copy(const mirrors* m, void* to, const void* from, size_t bytes) {
  cuda.push(own_gpu.context);
  cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, m->stream);
  cuda.pop(&(void*){NULL});
}
static __thread int n_mirror_waits; /* of this rank */
static void mirror_wait(const mirrors* m) {
  ++n_mirror_waits;
  cuda.push(own_gpu.context);
  cuda.synchronize(m->stream);
  cuda.pop(&(void*){NULL});
}
/* The same memory has one mirror. */
static void* mirror_of(mirrors* m, void* device, size_t bytes) {
  if (!device || bytes == 0) return device;
  for (int i = 0; i < m->n; ++i)
    if (m->of[i].device == device) return m->of[i].host;
  assert_true(m->n < MOST_MIRRORS);
  const size_t all = bytes + 2 * mirror_margin;
  char* host = (char*)aligned_alloc(64, (all + 63) / 64 * 64);
  assert_non_null(host);
  memset(host, 0, all); /* what a callback gets once the device has failed, where its kernels would not run */
  m->of[m->n].device = device;
  m->of[m->n].host = host + mirror_margin;
  m->of[m->n].before = NULL;
  m->of[m->n].bytes = bytes;
  mirror_copy(m, host, (char*)device - mirror_margin, all);
  if (mirror_margin) {
    m->of[m->n].before = (char*)malloc(all);
    assert_non_null(m->of[m->n].before);
    mirror_copy(m, m->of[m->n].before, (char*)device - mirror_margin, all);
  }
  ++m->n;
  return host + mirror_margin;
}
static gsel_tensor mirror_tensor(mirrors* m, gsel_tensor t) {
  t.data = mirror_of(m, t.data, (size_t)t.n_elems * gsel_dtype_bytes(t.dtype));
  return t;
}
static void mirror_back(mirrors* m, const void* host) {
  for (int i = 0; i < m->n; ++i)
    if (m->of[i].host == host) mirror_copy(m, m->of[i].device, host, m->of[i].bytes);
}
static void mirror_free(mirrors* m) {
  for (int i = 0; i < m->n; ++i) {
    char *host = (char*)m->of[i].host - mirror_margin, *device = (char*)m->of[i].device - mirror_margin;
    const size_t all = m->of[i].bytes + 2 * mirror_margin;
    for (size_t k = 0; m->of[i].before && k < all; ++k)
      if (host[k] != m->of[i].before[k]) mirror_copy(m, device + k, host + k, 1);
  }
  mirror_wait(m);
  for (int i = 0; i < m->n; ++i) {
    free((char*)m->of[i].host - mirror_margin);
    free(m->of[i].before);
  }
}

/* ---- layers ---- */

typedef struct host_kernel {
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  void* user_data;
} host_kernel;
enum { MOST_HOST_KERNELS = 1 << 15 };
static host_kernel host_kernels[MOST_HOST_KERNELS];
static atomic_int n_host_kernels;

enum { MOST_TENSORS = 8 };
typedef struct mirrored {
  gsel_tensor of[MOST_TENSORS];
} mirrored;
static const gsel_tensor* mirror_all(mirrors* m, mirrored* to, const gsel_tensor* from, int32_t n) {
  assert_true(n <= MOST_TENSORS);
  for (int32_t i = 0; from && i < n; ++i) to->of[i] = mirror_tensor(m, from[i]);
  return from ? to->of : NULL;
}
static void mirror_back_all(mirrors* m, const gsel_tensor* tensors, int32_t n) {
  for (int32_t i = 0; tensors && i < n; ++i)
    if (tensors[i].data) mirror_back(m, tensors[i].data);
}

/* Which gradients a call lends; other fields may be those of an earlier call. */
enum { NO_GRADIENTS, OF_INPUTS = 1, OF_PARAMS = 2 };
static gsel_status run_mirrored(gsel_layer_fn kernel, const gsel_call* call, void* user_data, int gradients) {
  if (!call->stream) return kernel(call, user_data);
  mirrors m = {.stream = call->stream};
  mirrored params, inputs, outputs, d_outputs, d_inputs, d_params, reductions;
  gsel_call host = *call;
  host.stream = NULL;
  host.user_data = user_data;
  host.params = mirror_all(&m, &params, call->params, call->n_params);
  host.inputs = mirror_all(&m, &inputs, call->inputs, call->n_inputs);
  host.outputs = mirror_all(&m, &outputs, call->outputs, call->n_outputs);
  host.d_outputs = gradients ? mirror_all(&m, &d_outputs, call->d_outputs, call->n_outputs) : NULL;
  host.d_inputs = gradients & OF_INPUTS ? mirror_all(&m, &d_inputs, call->d_inputs, call->n_inputs) : NULL;
  host.d_params = gradients & OF_PARAMS ? mirror_all(&m, &d_params, call->d_params, call->n_params) : NULL;
  host.reductions = mirror_all(&m, &reductions, call->reductions, call->n_reductions);
  host.saved = mirror_of(&m, call->saved, call->saved_bytes);
  mirror_wait(&m);
  const gsel_status status = kernel(&host, user_data);
  if (!gradients) mirror_back_all(&m, host.outputs, call->n_outputs);
  mirror_back_all(&m, host.d_inputs, call->n_inputs);
  mirror_back_all(&m, host.d_params, call->n_params);
  mirror_back_all(&m, host.reductions, call->n_reductions);
  if (host.saved) mirror_back(&m, host.saved);
  mirror_free(&m);
  return status;
}
static gsel_status mirrored_forward(const gsel_call* call, void* user) {
  return run_mirrored(((host_kernel*)user)->forward, call, ((host_kernel*)user)->user_data, NO_GRADIENTS);
}
static gsel_status mirrored_backward_input(const gsel_call* call, void* user) {
  return run_mirrored(((host_kernel*)user)->backward_input, call, ((host_kernel*)user)->user_data, OF_INPUTS);
}
static gsel_status mirrored_backward_weight(const gsel_call* call, void* user) {
  return run_mirrored(((host_kernel*)user)->backward_weight, call, ((host_kernel*)user)->user_data, OF_PARAMS);
}
static gsel_status mirrored_backward(const gsel_call* call, void* user) {
  return run_mirrored(((host_kernel*)user)->backward, call, ((host_kernel*)user)->user_data, OF_INPUTS | OF_PARAMS);
}

/* Ranks share device 0, which NCCL refuses. */
static int is_on_one_card(void) {
  return getenv("GSEL_TEST_ONE_CARD") != NULL;
}

/* ---- in place of the library's functions in this program ---- */

gsel_status gsel_model_add_layer(gsel_model* model, const gsel_layer_options* given, int32_t* out_id,
                                 gsel_error** err) {
  typedef gsel_status (*add_fn)(gsel_model*, const gsel_layer_options*, int32_t*, gsel_error**);
  const add_fn add = (add_fn)dlsym(RTLD_NEXT, "gsel_model_add_layer");
  gsel_layer_options options = *given;
  const int i = atomic_fetch_add(&n_host_kernels, 1);
  if (i >= MOST_HOST_KERNELS) return GSEL_ERR_NOMEM;
  host_kernels[i] =
      (host_kernel){given->forward, given->backward_input, given->backward_weight, given->backward, given->user_data};
  options.user_data = &host_kernels[i];
  if (options.forward && options.forward != of_device) options.forward = mirrored_forward;
  if (options.backward_input) options.backward_input = mirrored_backward_input;
  if (options.backward_weight) options.backward_weight = mirrored_backward_weight;
  if (options.backward) options.backward = mirrored_backward;
  return add(model, &options, out_id, err);
}

static __thread gsel_data_fn host_data; /* of the trainer that this thread drives */
static gsel_status mirrored_data(const gsel_data_request* request, void* user_data) {
  if (!request->stream) return host_data(request, user_data);
  mirrors m = {.stream = request->stream};
  gsel_data_request host = *request;
  host.stream = NULL;
  host.dst = mirror_tensor(&m, request->dst);
  mirror_wait(&m);
  const gsel_status status = host_data(&host, user_data);
  mirror_back(&m, host.dst.data);
  mirror_free(&m);
  return status;
}
gsel_status gsel_trainer_infer(gsel_trainer* trainer, int32_t value, int64_t n_samples, gsel_data_fn data,
                               void* user_data, void* dst, size_t dst_bytes, gsel_error** err) {
  typedef gsel_status (*infer_fn)(gsel_trainer*, int32_t, int64_t, gsel_data_fn, void*, void*, size_t, gsel_error**);
  const infer_fn infer = (infer_fn)dlsym(RTLD_NEXT, "gsel_trainer_infer");
  const gsel_data_fn of_steps = host_data;
  host_data = data;
  const gsel_status status =
      infer(trainer, value, n_samples, data ? mirrored_data : NULL, user_data, dst, dst_bytes, err);
  host_data = of_steps;
  return status;
}

static __thread gsel_optimizer_fn host_optimizer; /* of the trainer that this thread drives */
static gsel_status mirrored_optimizer(const gsel_optimizer_call* call, void* user_data) {
  if (!call->stream) return host_optimizer(call, user_data);
  mirrors m = {.stream = call->stream};
  const size_t bytes = (size_t)call->count * sizeof(float);
  float* states[4];
  assert_true(call->n_states <= 4);
  gsel_optimizer_call host = *call;
  host.stream = NULL;
  host.values = (float*)mirror_of(&m, call->values, bytes);
  host.gradient = (float*)mirror_of(&m, call->gradient, bytes);
  for (int32_t i = 0; i < call->n_states; ++i) states[i] = (float*)mirror_of(&m, call->states[i], bytes);
  host.states = states;
  mirror_wait(&m);
  const gsel_status status = host_optimizer(&host, user_data);
  mirror_back(&m, host.values);
  mirror_back(&m, host.gradient);
  for (int32_t i = 0; i < call->n_states; ++i) mirror_back(&m, states[i]);
  mirror_free(&m);
  return status;
}
gsel_status gsel_trainer_create(gsel_comm* comm, gsel_model* model, const gsel_trainer_options* given,
                                gsel_trainer** out, gsel_error** err) {
  typedef gsel_status (*create_fn)(gsel_comm*, gsel_model*, const gsel_trainer_options*, gsel_trainer**, gsel_error**);
  const create_fn create = (create_fn)dlsym(RTLD_NEXT, "gsel_trainer_create");
  gsel_trainer_options options = *given;
  if (!comm && on_card >= 0) {
    load_doubles("fake_libnccl.so");
    own_gpu = open_gpu(on_card);
  }
  host_data = given->data;
  if (options.data) options.data = mirrored_data;
  gsel_optimizer_options optimizer;
  if (given->optimizer) {
    optimizer = *given->optimizer;
    host_optimizer = optimizer.step;
    optimizer.step = mirrored_optimizer;
    options.optimizer = &optimizer;
  }
  return create(comm, model, &options, out, err);
}

gsel_status gsel_pipeline_create(gsel_comm* comm, gsel_model* model, const gsel_pipeline_options* given,
                                 gsel_pipeline** out, gsel_error** err) {
  typedef gsel_status (*create_fn)(gsel_comm*, gsel_model*, const gsel_pipeline_options*, gsel_pipeline**,
                                   gsel_error**);
  const create_fn create = (create_fn)dlsym(RTLD_NEXT, "gsel_pipeline_create");
  gsel_pipeline_options options = *given;
  host_data = given->data;
  if (options.data) options.data = mirrored_data;
  return create(comm, model, &options, out, err);
}

gsel_status gsel_comm_init(const gsel_comm_options* given, gsel_comm** out, gsel_error** err) {
  typedef gsel_status (*init_fn)(const gsel_comm_options*, gsel_comm**, gsel_error**);
  const init_fn init = (init_fn)dlsym(RTLD_NEXT, "gsel_comm_init");
  own_world = given->world_size;
  if (!on_transport) return init(given, out, err);
  load_doubles("fake_libnccl.so");
  const int shares = is_on_one_card() || (cuda.n_devices > 0 && given->world_size > cuda.n_devices);
  const int card = shares ? 0 : on_card < 0 ? (int)given->rank : on_card;
  own_gpu = open_gpu(card);
  char accelerator[32];
  snprintf(accelerator, sizeof accelerator, "%s:%d", device_plugin(), device_of_rank(card));
  gsel_comm_options options = *given;
  options.accelerator = gsel_str_from(accelerator);
  options.flags |= on_flags;
  options.transport = gsel_str_from(shares && !strcmp(on_transport, "nccl") ? "cuda_ipc" : transport_plugin(on_transport));
  return init(&options, out, err);
}

#endif
