// plugins/device/cuda/driver.h: the functions of the CUDA driver, found at run time, so that this plugin loads where
// there is no driver. Each name is asked for in the version of its interface that this file was written for, never in
// that of the headers at hand: a newer one than the driver's would not be found.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <string>

namespace gsel_cuda {

// name in cudaTypedefs.h, version of the interface, symbol that libcuda exports it under. A driver of 525 has them all.
#define GSEL_CUDA_FUNCTIONS(X)                                        \
  X(cuInit, 2000, "cuInit")                                           \
  X(cuDriverGetVersion, 2020, "cuDriverGetVersion")                   \
  X(cuGetErrorName, 6000, "cuGetErrorName")                           \
  X(cuGetErrorString, 6000, "cuGetErrorString")                       \
  X(cuDeviceGetCount, 2000, "cuDeviceGetCount")                       \
  X(cuDeviceGet, 2000, "cuDeviceGet")                                 \
  X(cuDeviceGetName, 2000, "cuDeviceGetName")                         \
  X(cuDeviceGetUuid, 11040, "cuDeviceGetUuid_v2")                     \
  X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute")               \
  X(cuDeviceCanAccessPeer, 4000, "cuDeviceCanAccessPeer")             \
  X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain")       \
  X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2") \
  X(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2")                    \
  X(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2")                      \
  X(cuCtxGetStreamPriorityRange, 5050, "cuCtxGetStreamPriorityRange") \
  X(cuMemGetInfo, 3020, "cuMemGetInfo_v2")                            \
  X(cuMemAlloc, 3020, "cuMemAlloc_v2")                                \
  X(cuMemFree, 3020, "cuMemFree_v2")                                  \
  X(cuMemHostAlloc, 2020, "cuMemHostAlloc")                           \
  X(cuMemFreeHost, 2000, "cuMemFreeHost")                             \
  X(cuMemGetAddressRange, 3020, "cuMemGetAddressRange_v2")            \
  X(cuPointerGetAttributes, 7000, "cuPointerGetAttributes")           \
  X(cuMemGetAccess, 10020, "cuMemGetAccess")                          \
  X(cuMemcpyAsync, 4000, "cuMemcpyAsync")                             \
  X(cuMemcpy2DAsync, 3020, "cuMemcpy2DAsync_v2")                      \
  X(cuMemsetD8Async, 3020, "cuMemsetD8Async")                         \
  X(cuStreamCreateWithPriority, 5050, "cuStreamCreateWithPriority")   \
  X(cuStreamGetCtx, 9020, "cuStreamGetCtx")                           \
  X(cuStreamDestroy, 4000, "cuStreamDestroy_v2")                      \
  X(cuStreamSynchronize, 2000, "cuStreamSynchronize")                 \
  X(cuStreamWaitEvent, 3020, "cuStreamWaitEvent")                     \
  X(cuEventCreate, 2000, "cuEventCreate")                             \
  X(cuEventDestroy, 4000, "cuEventDestroy_v2")                        \
  X(cuEventRecord, 2000, "cuEventRecord")                             \
  X(cuEventSynchronize, 2000, "cuEventSynchronize")                   \
  X(cuEventQuery, 2000, "cuEventQuery")                               \
  X(cuEventElapsedTime, 2000, "cuEventElapsedTime")                   \
  X(cuModuleLoadData, 2000, "cuModuleLoadData")                       \
  X(cuModuleUnload, 2000, "cuModuleUnload")                           \
  X(cuModuleGetFunction, 2000, "cuModuleGetFunction")                 \
  X(cuLaunchKernel, 4000, "cuLaunchKernel")

struct Driver {
#define GSEL_CUDA_MEMBER(name, version, symbol) PFN_##name##_v##version name = nullptr;
  GSEL_CUDA_FUNCTIONS(GSEL_CUDA_MEMBER)
#undef GSEL_CUDA_MEMBER
};

// The driver of this process, loaded by the first call and never again; nullptr when there is none, and then *why says
// what was tried. Calls none of its functions. Any thread.
const Driver* driver(std::string* why);
// The same, started.
const Driver* started_driver(std::string* why);

}  // namespace gsel_cuda
