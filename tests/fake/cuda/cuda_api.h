// fake/cuda/cuda_api.h: the interface of libcuda.so.1 as the double has it, declared here and nowhere else, so that it
// is built without a toolkit and shares no error with plugins/device/cuda. Where cuda.h is installed, cuda_check.cc
// compares the two at compile time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

using Pointer = unsigned long long;  // CUdeviceptr
using Any = void*;                   // contexts, streams, events, modules, functions, graphs

enum Error : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kDeviceUnavailable = 46,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kContextDestroyed = 709,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kCaptureMerge = 902,
  kCaptureUnmatched = 903,
  kCaptureUnjoined = 904,
  kCaptureIsolation = 905,
  kCaptureImplicit = 906,
  kCapturedEvent = 907,
  kCaptureWrongThread = 908,
  kUnknown = 999,
};
enum MemoryType : int { kHostMemory = 1, kDeviceMemory = 2 };
enum Attribute : int {
  kAttributeContext = 1,
  kAttributeType = 2,
  kAttributeOrdinal = 9,
  kAttributeStart = 11,
  kAttributeSize = 12,
  kAttributeMapped = 13,
};
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThread = 1, kCaptureRelaxed = 2 };
constexpr uint64_t kLegacyStream = 1;  // of cuGetProcAddress, and the stream itself
constexpr int kSymbolFound = 0, kSymbolNotFound = 1, kSymbolTooNew = 2;
constexpr unsigned kNonBlocking = 1;  // of cuStreamCreateWithPriority
constexpr int kLocationDevice = 1, kAllocationPinned = 1, kReadWrite = 3;
constexpr int kHandleFile = 1;  // of Properties: what is exported is a file descriptor
constexpr unsigned kRegisterPortable = 1, kRegisterMapped = 2, kRegisterDevice = 4, kRegisterReadOnly = 8;
enum WaitCondition : int { kWaitAtLeast = 0, kWaitEqual = 1, kWaitAnd = 2, kWaitNor = 3 };
constexpr unsigned kWaitFlush = 1u << 30;
enum DeviceAttribute : int {
  kRegisteredAtHostAddress = 91,
  kStreamMemoryV1 = 92,
  kStreamMemory64V1 = 93,
  kStreamWaitNorV1 = 94,
  kFlushesRemoteWrites = 98,
  kRegistersHost = 99,
  kVirtualMemory = 102,
  kExportsFiles = 103,
  kStreamMemory64 = 122,
  kStreamWaitNor = 123,
  kIpcEvents = 125,
  kFabric = 128,
};

struct Uuid {
  char bytes[16];
};
struct Copy2D {
  size_t src_x, src_y;
  int src_type;
  const void* src_host;
  Pointer src;
  void* src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  int dst_type;
  void* dst_host;
  Pointer dst;
  void* dst_array;
  size_t dst_pitch;
  size_t width, height;
};
struct Location {
  int type, id;
};
struct Properties {  // CUmemAllocationProp
  int type, handle_types;
  Location location;
  void* win32;
  unsigned char flags[8];
};
struct AccessRight {
  Location location;
  int flags;
};

// name, version of the interface, symbol, parameters. Each returns a CUresult.
#define FAKE_CUDA_FUNCTIONS(X)                                                                                \
  X(cuInit, 2000, cuInit, (unsigned))                                                                         \
  X(cuDriverGetVersion, 2020, cuDriverGetVersion, (int*))                                                     \
  X(cuGetErrorName, 6000, cuGetErrorName, (int, const char**))                                                \
  X(cuGetErrorString, 6000, cuGetErrorString, (int, const char**))                                            \
  X(cuDeviceGetCount, 2000, cuDeviceGetCount, (int*))                                                         \
  X(cuDeviceGet, 2000, cuDeviceGet, (int*, int))                                                              \
  X(cuDeviceGetName, 2000, cuDeviceGetName, (char*, int, int))                                                \
  X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (Uuid*, int))                                                 \
  X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, (int*, int, int))                                       \
  X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, (int*, int, int))                                     \
  X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, (Any*, int))                                    \
  X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (int))                                    \
  X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, (int, unsigned*, int*))                     \
  X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (Any))                                                       \
  X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (Any*))                                                        \
  X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (Any*))                                                           \
  X(cuCtxGetDevice, 2000, cuCtxGetDevice, (int*))                                                             \
  X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, (int*, int*))                             \
  X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t*, size_t*))                                                  \
  X(cuMemAlloc, 3020, cuMemAlloc_v2, (Pointer*, size_t))                                                      \
  X(cuMemFree, 3020, cuMemFree_v2, (Pointer))                                                                 \
  X(cuMemHostAlloc, 2020, cuMemHostAlloc, (void**, size_t, unsigned))                                         \
  X(cuMemFreeHost, 2000, cuMemFreeHost, (void*))                                                              \
  X(cuMemHostRegister, 6050, cuMemHostRegister_v2, (void*, size_t, unsigned))                                 \
  X(cuMemHostUnregister, 4000, cuMemHostUnregister, (void*))                                                  \
  X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2, (Pointer*, void*, unsigned))               \
  X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, (Pointer*, size_t*, Pointer))                        \
  X(cuPointerGetAttributes, 7000, cuPointerGetAttributes, (unsigned, int*, void**, Pointer))                  \
  X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity, (size_t*, const Properties*, int))   \
  X(cuMemAddressReserve, 10020, cuMemAddressReserve, (Pointer*, size_t, size_t, Pointer, unsigned long long)) \
  X(cuMemAddressFree, 10020, cuMemAddressFree, (Pointer, size_t))                                             \
  X(cuMemCreate, 10020, cuMemCreate, (unsigned long long*, size_t, const Properties*, unsigned long long))    \
  X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle,                                        \
    (void*, unsigned long long, int, unsigned long long))                                                     \
  X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle, (unsigned long long*, void*, int)) \
  X(cuMemRelease, 10020, cuMemRelease, (unsigned long long))                                                  \
  X(cuMemMap, 10020, cuMemMap, (Pointer, size_t, size_t, unsigned long long, unsigned long long))             \
  X(cuMemUnmap, 10020, cuMemUnmap, (Pointer, size_t))                                                         \
  X(cuMemSetAccess, 10020, cuMemSetAccess, (Pointer, size_t, const AccessRight*, size_t))                     \
  X(cuMemGetAccess, 10020, cuMemGetAccess, (unsigned long long*, const Location*, Pointer))                   \
  X(cuMemcpyAsync, 4000, cuMemcpyAsync, (Pointer, Pointer, size_t, Any))                                      \
  X(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, (const Copy2D*, Any))                                          \
  X(cuMemsetD8Async, 3020, cuMemsetD8Async, (Pointer, unsigned char, size_t, Any))                            \
  X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, (Any*, unsigned, int))                      \
  X(cuStreamGetCtx, 9020, cuStreamGetCtx, (Any, Any*))                                                        \
  X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (Any))                                                         \
  X(cuStreamSynchronize, 2000, cuStreamSynchronize, (Any))                                                    \
  X(cuStreamQuery, 2000, cuStreamQuery, (Any))                                                                \
  X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, (Any, Any, unsigned))                                         \
  X(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2, (Any, Pointer, uint32_t, unsigned))                 \
  X(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2, (Any, Pointer, uint32_t, unsigned))                   \
  X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, (Any, int))                                         \
  X(cuStreamEndCapture, 10000, cuStreamEndCapture, (Any, Any*))                                               \
  X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, (Any, int*))                                             \
  X(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2,                                                 \
    (Any, int*, unsigned long long*, Any*, const Any**, size_t*))                                             \
  X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, (int*))                      \
  X(cuGraphDestroy, 10000, cuGraphDestroy, (Any))                                                             \
  X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags, (Any*, Any, unsigned long long))         \
  X(cuGraphLaunch, 10000, cuGraphLaunch, (Any, Any))                                                          \
  X(cuGraphExecDestroy, 10000, cuGraphExecDestroy, (Any))                                                     \
  X(cuEventCreate, 2000, cuEventCreate, (Any*, unsigned))                                                     \
  X(cuEventDestroy, 4000, cuEventDestroy_v2, (Any))                                                           \
  X(cuEventRecord, 2000, cuEventRecord, (Any, Any))                                                           \
  X(cuEventSynchronize, 2000, cuEventSynchronize, (Any))                                                      \
  X(cuEventQuery, 2000, cuEventQuery, (Any))                                                                  \
  X(cuEventElapsedTime, 2000, cuEventElapsedTime, (float*, Any, Any))                                         \
  X(cuModuleLoadData, 2000, cuModuleLoadData, (Any*, const void*))                                            \
  X(cuModuleUnload, 2000, cuModuleUnload, (Any))                                                              \
  X(cuModuleGetFunction, 2000, cuModuleGetFunction, (Any*, Any, const char*))                                 \
  X(cuLaunchKernel, 4000, cuLaunchKernel,                                                                     \
    (Any, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Any, void**, void**))

// Earlier versions of the same, which come before them.
#define FAKE_CUDA_EARLIER_FUNCTIONS(X) X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (Uuid*, int))

#define FAKE_CUDA_DECLARE(name, version, symbol, parameters) \
  extern "C" __attribute__((visibility("default"))) int symbol parameters;
#ifndef CUDA_VERSION  // cuda.h declares them as well
FAKE_CUDA_FUNCTIONS(FAKE_CUDA_DECLARE)
FAKE_CUDA_EARLIER_FUNCTIONS(FAKE_CUDA_DECLARE)
#endif

}  // namespace fake_cuda
