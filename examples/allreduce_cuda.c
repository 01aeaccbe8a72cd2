/* allreduce_cuda.c: gradients of two buckets are averaged on a GPU while the program goes on. Each rank has a device,
 * two streams, and two communicators: the first bucket is averaged on the transfer stream, the second on the stream of
 * the kernels, and that stream waits for the first one's event. The host waits once, at the end.
 *
 *   gsel run -n 2 -- allreduce_cuda [TRANSPORT]
 */
#include <cuda.h>
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };

static void gsel_check(gsel_status status, gsel_error** err, const char* call) {
  char text[1024];
  if (status == GSEL_OK) return;
  gsel_error_format(*err, text, sizeof text);
  fprintf(stderr, "%s: %s\n", call, text);
  exit(1);
}

static void cuda_check(CUresult result, const char* call) {
  const char* name = "unknown";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorName(result, &name);
  fprintf(stderr, "%s: %s\n", call, name);
  exit(1);
}

#define GSEL(call) gsel_check(call, &err, #call)
#define CUDA(call) cuda_check(call, #call)

/* COUNT floats on the device, all of them `value`. */
static CUdeviceptr bucket(float* staging, float value, CUstream stream) {
  CUdeviceptr memory;
  CUDA(cuMemAlloc(&memory, COUNT * sizeof(float)));
  for (int i = 0; i < COUNT; ++i) staging[i] = value;
  CUDA(cuMemcpyAsync(memory, (CUdeviceptr)staging, COUNT * sizeof(float), stream));
  CUDA(cuStreamSynchronize(stream));
  return memory;
}

static gsel_collective average(CUdeviceptr memory, CUstream stream) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_F32;
  call.op = GSEL_AVG;
  call.send = call.recv = (void*)memory;
  call.count = COUNT;
  call.stream = stream;
  return call;
}

int main(int argc, char** argv) {
  gsel_error* err = NULL;
  gsel_comm *first, *second;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.accelerator = gsel_str_from("cuda"); /* this rank's own: number LOCAL_RANK */
  options.transport = gsel_str_from(argc > 1 ? argv[1] : "auto");
  GSEL(gsel_comm_init(&options, &first, &err));
  GSEL(gsel_comm_dup(first, &second, &err));
  const int rank = gsel_comm_rank(first), ranks = gsel_comm_world_size(first);

  const char* local = getenv("LOCAL_RANK");
  CUdevice device;
  CUcontext context;
  CUstream transfer, kernels;
  CUDA(cuInit(0));
  CUDA(cuDeviceGet(&device, local ? atoi(local) : 0));
  CUDA(cuDevicePrimaryCtxRetain(&context, device));
  CUDA(cuCtxPushCurrent(context));
  CUDA(cuStreamCreateWithPriority(&transfer, CU_STREAM_NON_BLOCKING, 0));
  CUDA(cuStreamCreateWithPriority(&kernels, CU_STREAM_NON_BLOCKING, 0));

  float* staging;
  CUDA(cuMemHostAlloc((void**)&staging, COUNT * sizeof(float), 0));
  const CUdeviceptr one = bucket(staging, (float)rank, transfer), two = bucket(staging, (float)(10 * rank), kernels);

  const gsel_collective on_transfer = average(one, transfer), on_kernels = average(two, kernels);
  gsel_request* request;
  void* passed;
  GSEL(gsel_comm_start(first, &on_transfer, &request, &err));
  GSEL(gsel_comm_run(second, &on_kernels, &err));
  const int has_event = gsel_request_event(request, &passed, &err) == GSEL_OK;
  if (has_event) {
    CUDA(cuStreamWaitEvent(kernels, (CUevent)passed, 0));
  } else { /* through host memory: no stream passes the call, so the host waits for it */
    gsel_error_free(err);
    err = NULL;
    GSEL(gsel_request_wait(request, &err));
  }

  const double expected[2] = {(ranks - 1) / 2.0, 10 * (ranks - 1) / 2.0};
  const CUdeviceptr buckets[2] = {one, two};
  for (int b = 0; b < 2; ++b) { /* the stream of the kernels sees both results */
    CUDA(cuMemcpyAsync((CUdeviceptr)staging, buckets[b], COUNT * sizeof(float), kernels));
    CUDA(cuStreamSynchronize(kernels));
    GSEL(gsel_comm_get_async_error(first, &err)); /* of a broken communicator a stream comes back, too */
    GSEL(gsel_comm_get_async_error(second, &err));
    for (int i = 0; i < COUNT; ++i)
      if ((double)staging[i] != expected[b]) {
        fprintf(stderr, "rank %d: element %d of bucket %d is %g and not %g\n", rank, i, b, (double)staging[i],
                expected[b]);
        return 1;
      }
  }
  printf("rank %d of %d: the averages are %g and %g\n", rank, ranks, expected[0], expected[1]);

  if (has_event) GSEL(gsel_request_wait(request, &err));
  gsel_request_free(request);
  gsel_comm_free(second);
  gsel_comm_free(first);
  CUDA(cuMemFree(one));
  CUDA(cuMemFree(two));
  CUDA(cuMemFreeHost(staging));
  CUDA(cuStreamDestroy(transfer));
  CUDA(cuStreamDestroy(kernels));
  CUDA(cuCtxPopCurrent(&context));
  CUDA(cuDevicePrimaryCtxRelease(device));
  return 0;
}
