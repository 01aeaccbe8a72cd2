// plugins/device/cuda/graph.cc: captures of streams and graphs. A capture belongs to the calling thread; other threads
// do not affect it. A driver may lack these functions; the error names the first missing one.
#include <memory>

#include "context.h"

struct gsel_graph {
  gsel_cuda::CUgraphExec native;
};

namespace gsel_cuda {
namespace {

void refuse_without_graphs(Context& c) {
  const char* missing = nullptr;
#define GSEL_CUDA_LOOK(name, version, symbol, parameters) \
  if (!c.driver->name && !missing) missing = #name;
  GSEL_CUDA_GRAPH_FUNCTIONS(GSEL_CUDA_LOOK)
#undef GSEL_CUDA_LOOK
  if (missing)
    fail(GSEL_ERR_UNSUPPORTED, std::string("the " GSEL_VENDOR " driver has no ") + missing +
                                   ", so it has no graphs; expected " GSEL_VENDOR_OLDEST);
}

gsel_status capture_begin(void* ctx, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    refuse_without_graphs(c);
    find_graph_kernels(c);
    check(c, c.driver->cuStreamBeginCapture(stream_of(c, stream).native, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
          "the begin of a capture");
  });
}

gsel_status capture_check(void* ctx, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    check(c, c.driver->cuStreamIsCapturing(stream_of(c, stream).native, &status), "the state of a capture");
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
      fail(GSEL_ERR_STATE,
           status == CU_STREAM_CAPTURE_STATUS_NONE
               ? "the stream is not captured"
               : "a call that a capture forbids has invalidated it, such as a wait for a stream or an event, or an "
                 "allocation; enqueue work only");
  });
}

gsel_status capture_end(void* ctx, gsel_stream* stream, gsel_graph** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context& c) {
    CUgraph graph = nullptr;
    check(c, c.driver->cuStreamEndCapture(stream_of(c, stream).native, &graph), "the end of a capture");
    auto made = std::make_unique<gsel_graph>();
    const CUresult result = c.driver->cuGraphInstantiateWithFlags(&made->native, graph, 0);
    c.driver->cuGraphDestroy(graph);
    check(c, result, "a graph");
    *out = made.release();
  });
}

gsel_status graph_launch(void* ctx, gsel_graph* graph, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    check(c, c.driver->cuGraphLaunch(graph->native, stream_of(c, stream).native), "the launch of a graph");
  });
}

void graph_free(void* ctx, gsel_graph* graph) {
  if (!graph) return;
  run(ctx, nullptr, [&](Context& c) { c.driver->cuGraphExecDestroy(graph->native); });
  delete graph;
}

}  // namespace

void add_graphs(gsel_device_v1& table) {
  table.capture_begin = capture_begin;
  table.capture_check = capture_check;
  table.capture_end = capture_end;
  table.graph_launch = graph_launch;
  table.graph_free = graph_free;
}

}  // namespace gsel_cuda
