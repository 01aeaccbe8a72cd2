// plugins/device/cuda/context.h: an opened device: its primary context, which all CUDA programs of this process share.
// Every function of the table makes the context current and restores the previous one, converts a failed driver call to
// an error with its number, and remembers a failure that ends CUDA in this process.
#pragma once

#include <gsel/device.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "driver.h"

namespace gsel_cuda {

struct Failure {
  gsel_status status;
  std::string text;
};

// Memory of a stream for kernels in several steps. It at least doubles; what was too small may be in use, or in a
// graph, and is freed with the stream.
struct Scratch {
  CUdeviceptr memory = 0;
  uint64_t bytes = 0;
  std::vector<CUdeviceptr> too_small;
};

}  // namespace gsel_cuda

struct gsel_stream {
  gsel_cuda::CUstream native;
  bool own;
  gsel_cuda::Scratch scratch;
};

struct gsel_event {
  gsel_cuda::CUevent native;
  bool own;
};

namespace gsel_cuda {

struct Context {
  const gsel_host_v1* host;
  const Driver* driver;
  CUdevice device;
  CUcontext context;
  CUmodule module;         // nullptr: the kernels do not load
  std::string no_kernels;  // reason why module is nullptr
  int32_t ordinal;
  int processors;  // multiprocessors
  std::string name, uuid;
  std::string card;                // uuid of the card that a MIG instance is of; empty: a whole card
  std::mutex mutex;                // guards the members below
  std::map<void*, int32_t> kinds;  // by address from alloc
  std::map<std::string, CUfunction> functions;
  std::string poison;  // reason why CUDA has ended in this process; empty: it has not
  gsel_stream default_stream{reinterpret_cast<CUstream>(kDefaultStream), false, {}};
};

inline Context& context_of(void* ctx) {
  return *static_cast<Context*>(ctx);
}
inline gsel_stream& stream_of(Context& c, gsel_stream* stream) {
  return stream ? *stream : c.default_stream;
}

[[noreturn]] void fail(gsel_status status, const std::string& text);

// Throws a Failure unless result is CUDA_SUCCESS; `what`: the operation, for the message.
void check(Context& c, CUresult result, const std::string& what);

// Status and error of the exception being handled.
gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept;

// Makes the device current on this thread; restores the previous context.
void enter(Context& c);
void leave(Context& c);

// RAII for enter and leave.
class Current {
 public:
  explicit Current(Context& c) : c_(c) { enter(c); }
  ~Current() { leave(c_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  Context& c_;
};

// Implements a function of the table: body(context) with the device current.
template <class Body>
gsel_status run(void* ctx, gsel_error** err, Body&& body) noexcept {
  Context& c = context_of(ctx);
  try {
    const Current current(c);
    body(c);
    return GSEL_OK;
  } catch (...) {
    return failed(c.host, err);
  }
}

// Parts of the table.
void add_memory(gsel_device_v1& table);
void add_streams(gsel_device_v1& table);
void add_kernels(gsel_device_v1& table);
void add_graphs(gsel_device_v1& table);

// Kernels that a graph may be the first to have: the driver may wait for the device when it finds one for the first
// time, which a capture forbids.
void find_graph_kernels(Context& c);

}  // namespace gsel_cuda
