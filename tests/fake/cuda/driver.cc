// fake/cuda/driver.cc: libcuda.so.1 as far as plugins/device/cuda asks for it, over the machine of machine.h. It
// carries that name inside, so that it counts as loaded from any path.
#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "machine.h"

using fake_cuda::Access;
using fake_cuda::Event;
using fake_cuda::Launch;
using fake_cuda::Machine;
using fake_cuda::Operation;
using fake_cuda::Stream;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kDevices = 4;
bool is_ended;  // by a sticky error
thread_local int waits;
thread_local std::vector<CUcontext> current;

CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(0x100 + device));
}

int number_in(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

// Every call with a context: it is current, CUDA has not ended, and what the work before did wrong comes out here.
template <class Body>
CUresult call(Body&& body) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  if (is_ended) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (current.empty()) {
    machine.violation("a call without a current context");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const CUresult result = body(machine);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
  return machine.take_violation().empty() ? result : CUDA_ERROR_UNKNOWN;
}

template <class Body>
CUresult on_stream(CUstream handle, Body&& body) {
  return call([&](Machine& machine) {
    Stream* stream = machine.stream(handle, reinterpret_cast<uintptr_t>(current.back()));
    return stream ? body(machine, *stream) : CUDA_ERROR_INVALID_HANDLE;
  });
}

bool is_pageable(const Machine& machine, CUdeviceptr address) {
  return !machine.find(address);
}

}  // namespace

// ---- what tests ask -------------------------------------------------------------------------------------------------

// Number of violations so far.
EXPORT int fake_cuda_violations() {
  const std::lock_guard lock(Machine::get().mutex());
  return static_cast<int>(Machine::get().violations().size());
}

// Text of violation i.
EXPORT const char* fake_cuda_violation(int i) {
  return Machine::get().violations().at(static_cast<size_t>(i)).c_str();
}

// How often this thread has waited for a stream or an event.
EXPORT int fake_cuda_waits() {
  return waits;
}

// Contexts that are current on this thread: none outside a call, unless the program has made one so.
EXPORT int fake_cuda_current() {
  return static_cast<int>(current.size());
}

// ---- start, devices
// ---------------------------------------------------------------------------------------------------

EXPORT CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult result, const char** text) {
  *text = result == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
          : result == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : result == CUDA_ERROR_INVALID_HANDLE  ? "CUDA_ERROR_INVALID_HANDLE"
                                                 : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
  const auto& all = Machine::get().violations();
  *text = all.empty() ? "as the fake machine was told" : all.back().c_str();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int* n) {
  *n = kDevices;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  snprintf(name, static_cast<size_t>(length), "fake GPU %d", device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  memset(uuid, 0x11 * (device + 1), sizeof *uuid);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 3;  // multiprocessors: a grid is smaller than most work
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  current.push_back(context);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

// ---- memory
// -------------------------------------------------------------------------------------------------------------

EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* bytes) {
  return call([&](Machine& machine) {
    *free_bytes = machine.free_bytes();
    *bytes = size_t{4} << 30;
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return call([&](Machine& machine) {
    *out = machine.alloc(bytes, reinterpret_cast<uintptr_t>(current.back()));
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr memory) {
  return call([&](Machine& machine) { return machine.free(memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

EXPORT CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  return call([&](Machine& machine) {
    *out = machine.alloc_pinned(bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

EXPORT CUresult cuMemFreeHost(void* memory) {
  return cuMemFree_v2(reinterpret_cast<CUdeviceptr>(memory));
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr memory) {
  return call([&](Machine& machine) {
    const fake_cuda::Allocation* a = machine.find(memory);
    if (!a) return CUDA_ERROR_NOT_FOUND;
    *base = a->begin;
    *bytes = a->end - a->begin;
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* attributes, void** values, CUdeviceptr memory) {
  return call([&](Machine& machine) {
    const fake_cuda::Allocation* a = machine.find(memory);
    for (unsigned i = 0; i < n; ++i) {
      const int type = !a ? 0 : a->pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      const int ordinal = !a ? -2 : a->context ? static_cast<int>(a->context) - 0x100 : 0;
      *static_cast<int*>(values[i]) = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? type : ordinal;
    }
    return CUDA_SUCCESS;
  });
}

// From pageable memory the driver takes the bytes before it returns; to pageable memory they come late.
EXPORT CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Operation operation;
    operation.name = "a copy of " + std::to_string(bytes) + " bytes";
    operation.accesses = {{dst, dst + bytes, true}};
    if (is_pageable(machine, src)) {
      const auto* from = reinterpret_cast<const char*>(src);
      operation.work = [dst, taken = std::vector<char>(from, from + bytes)] {
        memcpy(reinterpret_cast<void*>(dst), taken.data(), taken.size());
      };
    } else {
      operation.accesses.push_back({src, src + bytes, false});
      operation.work = [=] { memmove(reinterpret_cast<void*>(dst), reinterpret_cast<const void*>(src), bytes); };
    }
    machine.enqueue(stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* given, CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    const CUDA_MEMCPY2D what = *given;
    if (what.srcPitch < what.WidthInBytes || what.dstPitch < what.WidthInBytes) return CUDA_ERROR_INVALID_VALUE;
    Operation operation;
    operation.name = "a copy of " + std::to_string(what.Height) + " rows";
    for (size_t row = 0; row < what.Height; ++row) {
      const CUdeviceptr to = what.dstDevice + row * what.dstPitch, from = what.srcDevice + row * what.srcPitch;
      operation.accesses.push_back({to, to + what.WidthInBytes, true});
      operation.accesses.push_back({from, from + what.WidthInBytes, false});
    }
    operation.work = [=] {
      for (size_t row = 0; row < what.Height; ++row)
        memcpy(reinterpret_cast<char*>(what.dstDevice) + row * what.dstPitch,
               reinterpret_cast<const char*>(what.srcDevice) + row * what.srcPitch, what.WidthInBytes);
    };
    machine.enqueue(stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Operation operation;
    operation.name = "a fill of " + std::to_string(bytes) + " bytes";
    operation.accesses = {{dst, dst + bytes, true}};
    operation.work = [=] { memset(reinterpret_cast<void*>(dst), value, bytes); };
    machine.enqueue(stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

// ---- streams and events
// ---------------------------------------------------------------------------------------------------

EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned, int) {
  return call([&](Machine& machine) {
    *out = reinterpret_cast<CUstream>(machine.make_stream(reinterpret_cast<uintptr_t>(current.back())));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return on_stream(handle, [&](Machine&, Stream& stream) {
    *context = reinterpret_cast<CUcontext>(stream.context);
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuStreamDestroy_v2(CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    machine.drop_stream(&stream);
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    ++waits;
    machine.finish(stream);
    return is_ended ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
  });
}

EXPORT CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    machine.await(stream, *reinterpret_cast<Event*>(event));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuEventCreate(CUevent* out, unsigned) {
  return call([&](Machine&) {
    static auto* const events = new std::deque<Event>;  // what is enqueued may use one that was destroyed
    *out = reinterpret_cast<CUevent>(&events->emplace_back());
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuEventDestroy_v2(CUevent) {
  return call([](Machine&) { return CUDA_SUCCESS; });
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    machine.record(stream, *reinterpret_cast<Event*>(event));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
  return call([&](Machine& machine) {
    ++waits;
    machine.finish(*reinterpret_cast<Event*>(event));
    return is_ended ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
  });
}

EXPORT CUresult cuEventQuery(CUevent event) {
  return call([&](Machine& machine) {
    return machine.look(*reinterpret_cast<Event*>(event)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent a, CUevent b) {
  return call([&](Machine&) {
    const auto *from = reinterpret_cast<Event*>(a), *to = reinterpret_cast<Event*>(b);
    if (from->reached < from->recorded || to->reached < to->recorded) return CUDA_ERROR_NOT_READY;
    *milliseconds = static_cast<float>(static_cast<double>(to->time_ns - from->time_ns) * 1e-6);
    return CUDA_SUCCESS;
  });
}

// ---- kernels
// ------------------------------------------------------------------------------------------------------------------

EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return call([&](Machine&) {
    *module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
    return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  });
}

EXPORT CUresult cuModuleUnload(CUmodule) {
  return call([](Machine&) { return CUDA_SUCCESS; });
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  return call([&](Machine&) {
    if (!fake_cuda::has_kernel(name)) return CUDA_ERROR_NOT_FOUND;
    static std::set<std::string> names;  // as long-lived as functions
    *function = reinterpret_cast<CUfunction>(const_cast<char*>(names.insert(name).first->c_str()));
    return CUDA_SUCCESS;
  });
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                               unsigned, unsigned, CUstream handle, void** params, void**) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (blocks == 0 || threads == 0 || threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    const char* name = reinterpret_cast<const char*>(function);
    Launch launch = fake_cuda::make_launch(name, blocks, params);
    Operation operation;
    operation.name = name;
    operation.accesses = std::move(launch.accesses);
    operation.work = std::move(launch.work);
    if (++machine.launches == number_in("GSEL_FAKE_CUDA_STICKY", 0)) operation.work = [] { is_ended = true; };
    machine.enqueue(stream, std::move(operation));
    return CUDA_SUCCESS;
  });
}

// ---- names
// ----------------------------------------------------------------------------------------------------------------------

namespace {

struct Name {
  const char* base;
  int version;  // of the interface
  void* address;
};
#define KNOWN(base, version, function) \
  { #base, version, reinterpret_cast < void*>(function) }
const Name kNames[] = {
    KNOWN(cuInit, 2000, cuInit),
    KNOWN(cuGetErrorName, 6000, cuGetErrorName),
    KNOWN(cuGetErrorString, 6000, cuGetErrorString),
    KNOWN(cuDeviceGetCount, 2000, cuDeviceGetCount),
    KNOWN(cuDeviceGet, 2000, cuDeviceGet),
    KNOWN(cuDeviceGetName, 2000, cuDeviceGetName),
    KNOWN(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    KNOWN(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute),
    KNOWN(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain),
    KNOWN(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    KNOWN(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    KNOWN(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    KNOWN(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange),
    KNOWN(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    KNOWN(cuMemAlloc, 3020, cuMemAlloc_v2),
    KNOWN(cuMemFree, 3020, cuMemFree_v2),
    KNOWN(cuMemHostAlloc, 2020, cuMemHostAlloc),
    KNOWN(cuMemFreeHost, 2000, cuMemFreeHost),
    KNOWN(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
    KNOWN(cuPointerGetAttributes, 7000, cuPointerGetAttributes),
    KNOWN(cuMemcpyAsync, 4000, cuMemcpyAsync),
    KNOWN(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2),
    KNOWN(cuMemsetD8Async, 3020, cuMemsetD8Async),
    KNOWN(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority),
    KNOWN(cuStreamGetCtx, 9020, cuStreamGetCtx),
    KNOWN(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    KNOWN(cuStreamSynchronize, 2000, cuStreamSynchronize),
    KNOWN(cuStreamWaitEvent, 3020, cuStreamWaitEvent),
    KNOWN(cuEventCreate, 2000, cuEventCreate),
    KNOWN(cuEventDestroy, 4000, cuEventDestroy_v2),
    KNOWN(cuEventRecord, 2000, cuEventRecord),
    KNOWN(cuEventSynchronize, 2000, cuEventSynchronize),
    KNOWN(cuEventQuery, 2000, cuEventQuery),
    KNOWN(cuEventElapsedTime, 2000, cuEventElapsedTime),
    KNOWN(cuModuleLoadData, 2000, cuModuleLoadData),
    KNOWN(cuModuleUnload, 2000, cuModuleUnload),
    KNOWN(cuModuleGetFunction, 2000, cuModuleGetFunction),
    KNOWN(cuLaunchKernel, 4000, cuLaunchKernel),
};

bool is_lacking(const char* name) {
  const std::string list =
      std::string(",") + (getenv("GSEL_FAKE_CUDA_LACKS") ? getenv("GSEL_FAKE_CUDA_LACKS") : "") + ",";
  return list.find(std::string(",") + name + ",") != std::string::npos;
}

}  // namespace

// A version above the driver's is an error, an unknown name is not: its address is NULL.
EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult* result) {
  *out = nullptr;
  if (version > number_in("GSEL_FAKE_CUDA_DRIVER", 13000)) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
    Machine::get().violation("a function is asked for without saying what stream NULL is");
  *result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (const Name& known : kNames)
    if (!strcmp(known.base, name) && !is_lacking(name)) {
      *result = known.version <= version ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      if (known.version <= version) *out = known.address;
    }
  return CUDA_SUCCESS;
}
