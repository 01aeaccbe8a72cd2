// fake/cuda/hip_api.h: the interface of libamdhip64.so as the double has it, declared here and nowhere else, so that it
// shares no error with plugins/device/cuda. Where HIP's headers are installed, hip_check.cc compares the two.
#pragma once

#include "cuda_api.h"

namespace fake_hip {

using Any = void*;  // streams, events, modules, functions, graphs, addresses
using Location = fake_cuda::Location;
using Uuid = fake_cuda::Uuid;

constexpr int kMemcpyDefault = 4;
constexpr int kMultiprocessors = 63;  // hipDeviceAttributeMultiprocessorCount

// HIP's name, the name in the double of CUDA that does the same, parameters, arguments. Of a device, or of none.
#define FAKE_HIP_PLAIN(X)                                                                  \
  X(hipInit, cuInit, (unsigned flags), (flags))                                            \
  X(hipGetDeviceCount, cuDeviceGetCount, (int* n), (n))                                    \
  X(hipDeviceGet, cuDeviceGet, (int* device, int ordinal), (device, ordinal))              \
  X(hipDeviceGetName, cuDeviceGetName, (char* name, int n, int device), (name, n, device)) \
  X(hipDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, int device, int peer), (can, device, peer))
#define FAKE_HIP_OF_DEVICE(X)                                                                                     \
  X(hipDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int* least, int* greatest), (least, greatest)) \
  X(hipMemGetInfo, cuMemGetInfo_v2, (size_t * free, size_t * all), (free, all))                                   \
  X(hipMalloc, cuMemAlloc_v2, (Any * out, size_t bytes), (reinterpret_cast<Pointer*>(out), bytes))                \
  X(hipFree, cuMemFree_v2, (Any memory), (at(memory)))                                                            \
  X(hipHostMalloc, cuMemHostAlloc, (Any * out, size_t bytes, unsigned flags), (out, bytes, flags))                \
  X(hipHostFree, cuMemFreeHost, (Any memory), (memory))                                                           \
  X(hipMemGetAccess, cuMemGetAccess, (unsigned long long* flags, const Location* location, Any memory),           \
    (flags, location, at(memory)))                                                                                \
  X(hipMemsetD8Async, cuMemsetD8Async, (Any dst, unsigned char value, size_t bytes, Any stream),                  \
    (at(dst), value, bytes, stream))                                                                              \
  X(hipStreamCreateWithPriority, cuStreamCreateWithPriority, (Any * out, unsigned flags, int priority),           \
    (out, flags, priority))                                                                                       \
  X(hipStreamDestroy, cuStreamDestroy_v2, (Any stream), (stream))                                                 \
  X(hipStreamSynchronize, cuStreamSynchronize, (Any stream), (stream))                                            \
  X(hipStreamWaitEvent, cuStreamWaitEvent, (Any stream, Any event, unsigned flags), (stream, event, flags))       \
  X(hipThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int* mode), (mode))                   \
  X(hipEventCreateWithFlags, cuEventCreate, (Any * out, unsigned flags), (out, flags))                            \
  X(hipEventDestroy, cuEventDestroy_v2, (Any event), (event))                                                     \
  X(hipEventRecord, cuEventRecord, (Any event, Any stream), (event, stream))                                      \
  X(hipEventSynchronize, cuEventSynchronize, (Any event), (event))                                                \
  X(hipEventQuery, cuEventQuery, (Any event), (event))                                                            \
  X(hipEventElapsedTime, cuEventElapsedTime, (float* milliseconds, Any a, Any b), (milliseconds, a, b))           \
  X(hipModuleLoadData, cuModuleLoadData, (Any * module, const void* image), (module, image))                      \
  X(hipModuleUnload, cuModuleUnload, (Any module), (module))                                                      \
  X(hipModuleGetFunction, cuModuleGetFunction, (Any * function, Any module, const char* name),                    \
    (function, module, name))                                                                                     \
  X(hipModuleLaunchKernel, cuLaunchKernel,                                                                        \
    (Any function, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k, unsigned shared,       \
     Any stream, void** params, void** extra),                                                                    \
    (function, x, y, z, i, j, k, shared, stream, params, extra))                                                  \
  X(hipStreamBeginCapture, cuStreamBeginCapture_v2, (Any stream, int mode), (stream, mode))                       \
  X(hipStreamEndCapture, cuStreamEndCapture, (Any stream, Any * graph), (stream, graph))                          \
  X(hipStreamIsCapturing, cuStreamIsCapturing, (Any stream, int* status), (stream, status))                       \
  X(hipGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (Any * out, Any graph, unsigned long long flags),  \
    (out, graph, flags))                                                                                          \
  X(hipGraphLaunch, cuGraphLaunch, (Any graph, Any stream), (graph, stream))                                      \
  X(hipGraphDestroy, cuGraphDestroy, (Any graph), (graph))                                                        \
  X(hipGraphExecDestroy, cuGraphExecDestroy, (Any graph), (graph))

// What CUDA has in another form; name, parameters.
#define FAKE_HIP_OTHERS(X)                                                                \
  X(hipDriverGetVersion, (int* version))                                                  \
  X(hipDrvGetErrorName, (int result, const char** text))                                  \
  X(hipDrvGetErrorString, (int result, const char** text))                                \
  X(hipGetLastError, ())                                                                  \
  X(hipPeekAtLastError, ())                                                               \
  X(hipGetDevice, (int* device))                                                          \
  X(hipSetDevice, (int device))                                                           \
  X(hipDeviceGetUuid, (Uuid * uuid, int device))                                          \
  X(hipDeviceGetAttribute, (int* value, int attribute, int device))                       \
  X(hipStreamGetDevice, (Any stream, int* device))                                        \
  X(hipMemGetAddressRange, (Any * base, size_t * bytes, Any memory))                      \
  X(hipDrvPointerGetAttributes, (unsigned n, int* attributes, void** values, Any memory)) \
  X(hipMemcpyAsync, (Any dst, const void* src, size_t bytes, int kind, Any stream))       \
  X(hipMemcpy2DAsync,                                                                     \
    (Any dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int kind, Any stream))

}  // namespace fake_hip
