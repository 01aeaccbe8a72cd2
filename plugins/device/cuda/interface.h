// plugins/device/cuda/interface.h: the part of the CUDA driver's interface that this plugin uses, with the names of
// cuda.h, which is not needed to build. If a toolkit is installed, tests/fake/cuda/cuda_check.cc compares the two at
// compile time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gsel_cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct ContextOfDriver*;
using CUstream = struct StreamOfDriver*;
using CUevent = struct EventOfDriver*;
using CUmodule = struct ModuleOfDriver*;
using CUfunction = struct FunctionOfDriver*;
using CUgraph = struct GraphOfDriver*;
using CUgraphExec = struct ExecutableOfDriver*;
struct CUuuid {
  char bytes[16];
};

// Constants by type: name, value.
#define GSEL_CUDA_RESULTS(X)                        \
  X(CUDA_SUCCESS, 0)                                \
  X(CUDA_ERROR_INVALID_VALUE, 1)                    \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
  X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)              \
  X(CUDA_ERROR_NO_DEVICE, 100)                      \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                 \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)              \
  X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)              \
  X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)           \
  X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)        \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                 \
  X(CUDA_ERROR_NOT_READY, 600)                      \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                \
  X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                 \
  X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)           \
  X(CUDA_ERROR_ASSERT, 710)                         \
  X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)           \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                  \
  X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)         \
  X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
  X(CUDA_ERROR_CAPTURED_EVENT, 907)
#define GSEL_CUDA_POINTER_ATTRIBUTES(X)        \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)       \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)    \
  X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)
#define GSEL_CUDA_MEMORY_TYPES(X) X(CU_MEMORYTYPE_HOST, 1) X(CU_MEMORYTYPE_DEVICE, 2)
#define GSEL_CUDA_NUMBERS(X)                      \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)               \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)        \
  X(CU_STREAM_NON_BLOCKING, 1)                    \
  X(CU_EVENT_DEFAULT, 0)                          \
  X(CU_EVENT_DISABLE_TIMING, 2)                   \
  X(CU_EVENT_WAIT_DEFAULT, 0)                     \
  X(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1)

#define GSEL_CUDA_CAPTURE_MODES(X) X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)
#define GSEL_CUDA_CAPTURE_STATUSES(X) X(CU_STREAM_CAPTURE_STATUS_NONE, 0) X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)

#define GSEL_CUDA_CONSTANT(name, value) name = value,
enum CUresult : int { GSEL_CUDA_RESULTS(GSEL_CUDA_CONSTANT) };
enum CUpointer_attribute : int { GSEL_CUDA_POINTER_ATTRIBUTES(GSEL_CUDA_CONSTANT) };
enum CUmemorytype : int { GSEL_CUDA_MEMORY_TYPES(GSEL_CUDA_CONSTANT) };
enum CUstreamCaptureMode : int { GSEL_CUDA_CAPTURE_MODES(GSEL_CUDA_CONSTANT) };
enum CUstreamCaptureStatus : int { GSEL_CUDA_CAPTURE_STATUSES(GSEL_CUDA_CONSTANT) };
enum Number : int { GSEL_CUDA_NUMBERS(GSEL_CUDA_CONSTANT) };
#undef GSEL_CUDA_CONSTANT

// Macros of cuda.h.
constexpr unsigned kHostAllocPortable = 1, kHostAllocMapped = 2;

struct CUmemLocation {
  int type, id;
};
struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

// name in cudaTypedefs.h, interface version, exported symbol in libcuda, parameters. Driver 525 has them all.
#define GSEL_CUDA_FUNCTIONS(X)                                                                                     \
  X(cuInit, 2000, "cuInit", (unsigned))                                                                            \
  X(cuDriverGetVersion, 2020, "cuDriverGetVersion", (int*))                                                        \
  X(cuGetErrorName, 6000, "cuGetErrorName", (CUresult, const char**))                                              \
  X(cuGetErrorString, 6000, "cuGetErrorString", (CUresult, const char**))                                          \
  X(cuDeviceGetCount, 2000, "cuDeviceGetCount", (int*))                                                            \
  X(cuDeviceGet, 2000, "cuDeviceGet", (CUdevice*, int))                                                            \
  X(cuDeviceGetName, 2000, "cuDeviceGetName", (char*, int, CUdevice))                                              \
  X(cuDeviceGetUuid, 11040, "cuDeviceGetUuid_v2", (CUuuid*, CUdevice))                                             \
  X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute", (int*, int, CUdevice))                                     \
  X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer", (int*, CUdevice, CUdevice))                              \
  X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                            \
  X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                                  \
  X(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2", (CUcontext))                                                    \
  X(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2", (CUcontext*))                                                     \
  X(cuCtxGetStreamPriorityRange, 5050, "cuCtxGetStreamPriorityRange", (int*, int*))                                \
  X(cuMemGetInfo, 3020, "cuMemGetInfo_v2", (size_t*, size_t*))                                                     \
  X(cuMemAlloc, 3020, "cuMemAlloc_v2", (CUdeviceptr*, size_t))                                                     \
  X(cuMemFree, 3020, "cuMemFree_v2", (CUdeviceptr))                                                                \
  X(cuMemHostAlloc, 2020, "cuMemHostAlloc", (void**, size_t, unsigned))                                            \
  X(cuMemFreeHost, 2000, "cuMemFreeHost", (void*))                                                                 \
  X(cuMemGetAddressRange, 3020, "cuMemGetAddressRange_v2", (CUdeviceptr*, size_t*, CUdeviceptr))                   \
  X(cuPointerGetAttributes, 7000, "cuPointerGetAttributes", (unsigned, CUpointer_attribute*, void**, CUdeviceptr)) \
  X(cuMemGetAccess, 10020, "cuMemGetAccess", (unsigned long long*, const CUmemLocation*, CUdeviceptr))             \
  X(cuMemcpyAsync, 4000, "cuMemcpyAsync", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                            \
  X(cuMemcpy2DAsync, 3020, "cuMemcpy2DAsync_v2", (const CUDA_MEMCPY2D*, CUstream))                                 \
  X(cuMemsetD8Async, 3020, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                      \
  X(cuStreamCreateWithPriority, 5050, "cuStreamCreateWithPriority", (CUstream*, unsigned, int))                    \
  X(cuStreamGetCtx, 9020, "cuStreamGetCtx", (CUstream, CUcontext*))                                                \
  X(cuStreamDestroy, 4000, "cuStreamDestroy_v2", (CUstream))                                                       \
  X(cuStreamSynchronize, 2000, "cuStreamSynchronize", (CUstream))                                                  \
  X(cuStreamWaitEvent, 3020, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                   \
  X(cuThreadExchangeStreamCaptureMode, 10010, "cuThreadExchangeStreamCaptureMode", (CUstreamCaptureMode*))         \
  X(cuEventCreate, 2000, "cuEventCreate", (CUevent*, unsigned))                                                    \
  X(cuEventDestroy, 4000, "cuEventDestroy_v2", (CUevent))                                                          \
  X(cuEventRecord, 2000, "cuEventRecord", (CUevent, CUstream))                                                     \
  X(cuEventSynchronize, 2000, "cuEventSynchronize", (CUevent))                                                     \
  X(cuEventQuery, 2000, "cuEventQuery", (CUevent))                                                                 \
  X(cuEventElapsedTime, 2000, "cuEventElapsedTime", (float*, CUevent, CUevent))                                    \
  X(cuModuleLoadData, 2000, "cuModuleLoadData", (CUmodule*, const void*))                                          \
  X(cuModuleUnload, 2000, "cuModuleUnload", (CUmodule))                                                            \
  X(cuModuleGetFunction, 2000, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))                        \
  X(cuLaunchKernel, 4000, "cuLaunchKernel",                                                                        \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**, void**))

// Graph functions. Without one of these the device has no graphs.
#define GSEL_CUDA_GRAPH_FUNCTIONS(X)                                                                      \
  X(cuStreamBeginCapture, 10010, "cuStreamBeginCapture_v2", (CUstream, CUstreamCaptureMode))              \
  X(cuStreamEndCapture, 10000, "cuStreamEndCapture", (CUstream, CUgraph*))                                \
  X(cuStreamIsCapturing, 10000, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus*))                \
  X(cuGraphInstantiateWithFlags, 11040, "cuGraphInstantiateWithFlags", (CUgraphExec*, CUgraph, uint64_t)) \
  X(cuGraphLaunch, 10000, "cuGraphLaunch", (CUgraphExec, CUstream))                                       \
  X(cuGraphDestroy, 10000, "cuGraphDestroy", (CUgraph))                                                   \
  X(cuGraphExecDestroy, 10000, "cuGraphExecDestroy", (CUgraphExec))

using GetProcAddress = CUresult(const char*, void**, int, uint64_t);          // 11.3
using GetProcAddressV2 = CUresult(const char*, void**, int, uint64_t, int*);  // 12.0

}  // namespace gsel_cuda
