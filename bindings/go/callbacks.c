/* callbacks.c: what gsel calls, each of which calls the exported Go function of its kind with user_data as the
 * cgo.Handle that it is. A handle is a small number, which no pointer of Go may be, so it becomes a pointer only here. */
#include "_cgo_export.h"
#include "shim.h"
#ifdef GSEL_GO_STATIC
#include <gsel/strategies.h>
#endif

gsel_status go_register_strategies(gsel_error **err) {
  gsel_status status = GSEL_OK;
  *err = NULL;
#ifdef GSEL_GO_STATIC
  for (int i = 0; !status && gsel_strategies_v1[i]; ++i) status = gsel_plugin_register(gsel_strategies_v1[i], err);
#endif
  return status;
}

static void released(void *user_data) {
  goReleased((uintptr_t)user_data);
}

static __thread go_frame *inner;
void go_enter(go_frame *frame) {
  frame->outer = inner;
  inner = frame;
}
void go_leave(go_frame *frame) {
  inner = frame->outer;
}
go_frame *go_inner(void) {
  return inner;
}

static int32_t op(void *accumulated, const void *next, size_t count, gsel_dtype dtype, void *user_data) {
  go_frame frame = {(uintptr_t)user_data, NULL};
  go_enter(&frame);
  int32_t status = goOp(accumulated, (void *)next, count, dtype, &frame);
  go_leave(&frame);
  return status;
}
gsel_status go_op_create(gsel_str name, size_t record_elems, uintptr_t handle, gsel_op *out, gsel_error **err) {
  return gsel_op_create(name, record_elems, op, (void *)handle, released, out, err);
}

static void log_line(gsel_log_level level, gsel_str component, gsel_str line, void *user_data) {
  goLog(level, component, line, (uintptr_t)user_data);
}
void go_log_set(gsel_log_level level, uintptr_t handle) {
  if (handle)
    gsel_log_set(log_line, level, (void *)handle, released);
  else
    gsel_log_set(NULL, level, NULL, NULL);
}

static gsel_status param_init(float *dst, int64_t first, int64_t count, uint64_t seed, void *user_data) {
  return goParamInit(dst, first, count, seed, (uintptr_t)user_data, inner);
}
void go_set_param_init(gsel_param_options *options, uintptr_t handle) {
  options->init_fn = param_init;
  options->init_user_data = (void *)handle;
  options->init_free_user_data = released;
}

static gsel_status forward(const gsel_call *call, void *user_data) {
  return goLayer((gsel_call *)call, GSEL_FORWARD, (uintptr_t)user_data, inner);
}
static gsel_status backward_input(const gsel_call *call, void *user_data) {
  return goLayer((gsel_call *)call, GSEL_BACKWARD_INPUT, (uintptr_t)user_data, inner);
}
static gsel_status backward_weight(const gsel_call *call, void *user_data) {
  return goLayer((gsel_call *)call, GSEL_BACKWARD_WEIGHT, (uintptr_t)user_data, inner);
}
static gsel_status backward(const gsel_call *call, void *user_data) {
  return goLayer((gsel_call *)call, GSEL_BACKWARD, (uintptr_t)user_data, inner);
}
void go_set_layer(gsel_layer_options *options, uintptr_t handle, int has_forward, int has_backward_input,
                  int has_backward_weight, int has_backward) {
  options->forward = has_forward ? forward : NULL;
  options->backward_input = has_backward_input ? backward_input : NULL;
  options->backward_weight = has_backward_weight ? backward_weight : NULL;
  options->backward = has_backward ? backward : NULL;
  options->user_data = (void *)handle;
  options->free_user_data = released;
}

static gsel_status data(const gsel_data_request *request, void *user_data) {
  return goData((gsel_data_request *)request, (uintptr_t)user_data, inner);
}
void go_set_data(gsel_trainer_options *options, uintptr_t handle) {
  options->data = data;
  options->data_user_data = (void *)handle;
  options->data_free_user_data = released;
}
void go_set_pipeline_data(gsel_pipeline_options *options, uintptr_t handle) {
  options->data = data;
  options->data_user_data = (void *)handle;
  options->data_free_user_data = released;
}
void go_set_check_data(gsel_model_check_options *options, uintptr_t handle) {
  options->data = data;
  options->data_user_data = (void *)handle;
}

static gsel_status optimizer(const gsel_optimizer_call *call, void *user_data) {
  return goOptimizer((gsel_optimizer_call *)call, (uintptr_t)user_data, inner);
}
void go_set_optimizer(gsel_optimizer_options *options, uintptr_t handle) {
  options->step = optimizer;
  options->user_data = (void *)handle;
}

gsel_status go_evaluate(gsel_trainer *trainer, int64_t first_sample, uintptr_t handle, gsel_step_report *report,
                        gsel_error **err) {
  return gsel_trainer_evaluate(trainer, first_sample, handle ? data : NULL, (void *)handle, report, err);
}
gsel_status go_infer(gsel_trainer *trainer, int32_t value, int64_t n_samples, uintptr_t handle, void *dst,
                     size_t dst_bytes, gsel_error **err) {
  return gsel_trainer_infer(trainer, value, n_samples, handle ? data : NULL, (void *)handle, dst, dst_bytes, err);
}

gsel_status go_tensor_to_dlpack(const gsel_tensor *tensor, gsel_dlpack_device device, uintptr_t handle,
                                gsel_dlpack_versioned **out, gsel_error **err) {
  return gsel_tensor_to_dlpack(tensor, &device, handle ? released : NULL, (void *)handle, out, err);
}

static int32_t plan_progress(int64_t n_tried, void *user_data) {
  return goPlanProgress(n_tried, (uintptr_t)user_data);
}
void go_set_plan_progress(gsel_plan_options *options, uintptr_t handle) {
  options->progress = plan_progress;
  options->user_data = (void *)handle;
}

static int32_t checkpoint_progress(uint64_t done_bytes, uint64_t total_bytes, void *user_data) {
  return goCheckpointProgress(done_bytes, total_bytes, (uintptr_t)user_data);
}
void go_set_checkpoint_progress(gsel_checkpoint_tool_options *options, uintptr_t handle) {
  options->progress = checkpoint_progress;
  options->user_data = (void *)handle;
}

/* The two forms of a managed tensor up to the deleter, as DLPack 1.0 lays them out. */
struct managed_versioned {
  uint32_t version[2];
  void *manager_ctx;
  void (*deleter)(void *);
};
struct managed {
  struct {
    void *data;
    int32_t device[2];
    int32_t n_dims;
    uint8_t dtype[4];
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
  void *manager_ctx;
  void (*deleter)(void *);
};
void go_dlpack_delete(void *managed, int versioned) {
  void (*deleter)(void *) =
      versioned ? ((struct managed_versioned *)managed)->deleter : ((struct managed *)managed)->deleter;
  if (deleter) deleter(managed);
}
