/* shim.h: the C side of the Go binding: calls that take their struct's fields one by one, since Go may not hand C a
 * struct that points to Go memory; and the callbacks that gsel gets, whose user_data is a cgo.Handle. */
#ifndef GSEL_GO_SHIM_H
#define GSEL_GO_SHIM_H

#include <gsel/gsel.h>
#include <stdlib.h>

/* Result of a call: by value, so that no place for the error has to be made on Go's heap. */
typedef struct go_result {
  gsel_error *err;
  gsel_status status;
} go_result;

/* Registers the strategies of libgsel_plugins.a in a build with the tag gsel_static; else there are none. */
gsel_status go_register_strategies(gsel_error **err);
static inline gsel_status go_plugin_register(const void *plugin, gsel_error **err) {
  return gsel_plugin_register(plugin, err);
}

/* calloc, whose NULL cgo's own wrapper turns into the end of the program. */
static inline void *go_zeroed(size_t bytes) {
  return calloc(1, bytes);
}

/* Arguments of a collective, flat. A pointer is checked by cgo where it is an argument of its own. */
static inline gsel_collective go_collective(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root,
                                            int32_t source, const void *send, void *recv, uint64_t count,
                                            uint64_t recv_count, const uint64_t *send_counts,
                                            const uint64_t *send_offsets, const uint64_t *recv_counts,
                                            const uint64_t *recv_offsets, double factor, double timeout_s,
                                            const char *label, size_t label_bytes, int32_t tag, int32_t recv_tag,
                                            gsel_message *received, uintptr_t stream) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind, call.dtype = dtype, call.op = op, call.root = root, call.source = source;
  call.send = send, call.recv = recv, call.count = count, call.recv_count = recv_count;
  call.send_counts = send_counts, call.send_offsets = send_offsets;
  call.recv_counts = recv_counts, call.recv_offsets = recv_offsets;
  call.factor = factor, call.timeout_s = timeout_s;
  call.label.data = label, call.label.len = label ? label_bytes : 0;
  call.tag = tag, call.recv_tag = recv_tag, call.received = received;
  call.stream = (void *)stream;
  return call;
}

/* A call whose remaining arguments are zero. The types of the pointers keep cgo from checking them at each call: the
 * communicator is a number, and the elements of slices are bytes, which hold no pointers. */
static inline go_result go_run_plain(uintptr_t comm, gsel_collective_kind kind, gsel_dtype dtype, gsel_op op,
                                     int32_t root, const unsigned char *send, unsigned char *recv, uint64_t count,
                                     double timeout_s) {
  go_result result = {NULL, GSEL_OK};
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind, call.dtype = dtype, call.op = op, call.root = root;
  call.send = send, call.recv = recv, call.count = count, call.timeout_s = timeout_s;
  result.status = gsel_comm_run((gsel_comm *)comm, &call, &result.err);
  return result;
}

static inline go_result go_run(gsel_comm *comm, gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root,
                               int32_t source, const void *send, void *recv, uint64_t count, uint64_t recv_count,
                               const uint64_t *send_counts, const uint64_t *send_offsets, const uint64_t *recv_counts,
                               const uint64_t *recv_offsets, double factor, double timeout_s, const char *label,
                               size_t label_bytes, int32_t tag, int32_t recv_tag, gsel_message *received,
                               uintptr_t stream) {
  go_result result = {NULL, GSEL_OK};
  gsel_collective call =
      go_collective(kind, dtype, op, root, source, send, recv, count, recv_count, send_counts, send_offsets, recv_counts,
                    recv_offsets, factor, timeout_s, label, label_bytes, tag, recv_tag, received, stream);
  result.status = gsel_comm_run(comm, &call, &result.err);
  return result;
}

/* Addresses that are numbers to Go: streams of a device, user_data of callbacks. */
static inline gsel_status go_set_stream(gsel_comm *comm, uintptr_t stream, gsel_error **err) {
  return gsel_comm_set_stream(comm, (void *)stream, err);
}

/* What a thread is in: a call that runs callbacks, or a callback of an operation. ticket is the cgo.Handle of what keeps
 * their errors. */
typedef struct go_frame {
  uintptr_t ticket;
  struct go_frame *outer; /* that in which this one began */
} go_frame;
void go_enter(go_frame *frame);
void go_leave(go_frame *frame);
go_frame *go_inner(void); /* of this thread; NULL for none */

/* user is a number to Go, and comes back from go_queue_next. */
static inline gsel_status go_request_notify(gsel_request *request, gsel_queue *queue, uintptr_t user, gsel_error **err) {
  return gsel_request_notify(request, queue, (void *)user, err);
}
static inline gsel_status go_queue_next(gsel_queue *queue, int32_t *found, uintptr_t *user, gsel_error **err) {
  void *p = NULL;
  gsel_status status = gsel_queue_next(queue, 0, found, &p, err);
  *user = (uintptr_t)p;
  return status;
}

/* The callbacks. Each gives the call to the exported Go function of its kind. */
gsel_status go_op_create(gsel_str name, size_t record_elems, uintptr_t handle, gsel_op *out, gsel_error **err);
void go_log_set(gsel_log_level level, uintptr_t handle);
void go_set_param_init(gsel_param_options *options, uintptr_t handle);
void go_set_layer(gsel_layer_options *options, uintptr_t handle, int forward, int backward_input, int backward_weight,
                  int backward);
void go_set_data(gsel_trainer_options *options, uintptr_t handle);
void go_set_pipeline_data(gsel_pipeline_options *options, uintptr_t handle);
void go_set_check_data(gsel_model_check_options *options, uintptr_t handle);
void go_set_plan_progress(gsel_plan_options *options, uintptr_t handle);
void go_set_checkpoint_progress(gsel_checkpoint_tool_options *options, uintptr_t handle);
void go_set_optimizer(gsel_optimizer_options *options, uintptr_t handle);
gsel_status go_evaluate(gsel_trainer *trainer, int64_t first_sample, uintptr_t handle, gsel_step_report *report,
                        gsel_error **err);
gsel_status go_infer(gsel_trainer *trainer, int32_t value, int64_t n_samples, uintptr_t handle, void *dst,
                     size_t dst_bytes, gsel_error **err);
gsel_status go_tensor_to_dlpack(const gsel_tensor *tensor, gsel_dlpack_device device, uintptr_t handle,
                                gsel_dlpack_versioned **out, gsel_error **err);
void go_dlpack_delete(void *managed, int versioned);

#endif
