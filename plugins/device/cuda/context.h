// plugins/device/cuda/context.h: an opened device: its primary context, which CUDA programs of this process share, and
// what every function of the table does around its work: the context is current inside and as it was before outside, a
// failed call of the driver becomes an error with its number, and a failure that ends CUDA in this process is
// remembered.
#pragma once

#include <gsel/device.h>

#include <map>
#include <mutex>
#include <string>

#include "driver.h"

namespace gsel_cuda {

struct Failure {
  gsel_status status;
  std::string text;
};

// Memory of a stream for kernels that work in several steps; grows, and is freed with the stream.
struct Scratch {
  CUdeviceptr memory = 0;
  uint64_t bytes = 0;
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
  CUmodule module;         // nullptr: the kernels do not load here
  std::string no_kernels;  // and why
  int32_t ordinal;
  int processors;  // multiprocessors
  std::string name, uuid;
  std::mutex mutex;                // of what follows
  std::map<void*, int32_t> kinds;  // of memory that alloc gave
  std::map<std::string, CUfunction> functions;
  std::string poison;  // why CUDA is over in this process; empty: it is not
  gsel_stream default_stream{reinterpret_cast<CUstream>(kLegacyStream), false, {}};
};

inline Context& context_of(void* ctx) {
  return *static_cast<Context*>(ctx);
}
inline gsel_stream& stream_of(Context& c, gsel_stream* stream) {
  return stream ? *stream : c.default_stream;
}

[[noreturn]] void fail(gsel_status status, const std::string& text);

// Throws a Failure for what is not CUDA_SUCCESS; `what` was asked for.
void check(Context& c, CUresult result, const std::string& what);

// Status and error of a failure; takes what is being thrown.
gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept;

// Makes the device current on this thread, and what was before again.
void enter(Context& c);
void leave(Context& c);

// The same for the time of its life.
class Current {
 public:
  explicit Current(Context& c) : c_(c) { enter(c); }
  ~Current() { leave(c_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  Context& c_;
};

// A function of the table: body(context) with the device current.
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

}  // namespace gsel_cuda
