// plugins/device/cuda/amd.h: part of vendor.h: AMD, with HIP 6.0 or newer, whose types of memory have CUDA's numbers.
// hipError_t has the numbers of CUresult.
#pragma once

#include "interface.h"

#define GSEL_VENDOR "HIP"
#define GSEL_VENDOR_DEVICE "rocm"
#define GSEL_VENDOR_OLDEST "ROCm 6.0 or newer"
#define GSEL_VENDOR_COMPILER "hipcc"
#define GSEL_VENDOR_COMPILER_OLDEST "one of ROCm, or that of a distribution"
#define GSEL_VENDOR_MASK "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"

namespace gsel_cuda {

// The one that the program has loaded, else the newest.
constexpr const char* kLibraries[] = {"libamdhip64.so.7", "libamdhip64.so.6"};
constexpr int32_t kDlpackType = 10;
constexpr uintptr_t kDefaultStream = 0;  // hipStreamLegacy, which is 1, is newer than HIP 6.0
constexpr bool kHasInstances = false;
constexpr int kProcessors = 63;  // hipDeviceAttributeMultiprocessorCount

// CUDA's name, HIP's name: with the same parameters and meaning.
#define GSEL_HIP_FUNCTIONS(X)                                              \
  X(cuInit, hipInit)                                                       \
  X(cuDriverGetVersion, hipDriverGetVersion)                               \
  X(cuGetErrorName, hipDrvGetErrorName)                                    \
  X(cuGetErrorString, hipDrvGetErrorString)                                \
  X(cuDeviceGetCount, hipGetDeviceCount)                                   \
  X(cuDeviceGet, hipDeviceGet)                                             \
  X(cuDeviceGetName, hipDeviceGetName)                                     \
  X(cuDeviceGetUuid, hipDeviceGetUuid)                                     \
  X(cuDeviceGetAttribute, hipDeviceGetAttribute)                           \
  X(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)                         \
  X(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)          \
  X(cuMemGetInfo, hipMemGetInfo)                                           \
  X(cuMemAlloc, hipMalloc)                                                 \
  X(cuMemFree, hipFree)                                                    \
  X(cuMemHostAlloc, hipHostMalloc)                                         \
  X(cuMemFreeHost, hipHostFree)                                            \
  X(cuMemGetAddressRange, hipMemGetAddressRange)                           \
  X(cuPointerGetAttributes, hipDrvPointerGetAttributes)                    \
  X(cuMemGetAccess, hipMemGetAccess)                                       \
  X(cuMemsetD8Async, hipMemsetD8Async)                                     \
  X(cuStreamCreateWithPriority, hipStreamCreateWithPriority)               \
  X(cuStreamDestroy, hipStreamDestroy)                                     \
  X(cuStreamSynchronize, hipStreamSynchronize)                             \
  X(cuStreamWaitEvent, hipStreamWaitEvent)                                 \
  X(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode) \
  X(cuEventCreate, hipEventCreateWithFlags)                                \
  X(cuEventDestroy, hipEventDestroy)                                       \
  X(cuEventRecord, hipEventRecord)                                         \
  X(cuEventSynchronize, hipEventSynchronize)                               \
  X(cuEventQuery, hipEventQuery)                                           \
  X(cuEventElapsedTime, hipEventElapsedTime)                               \
  X(cuModuleLoadData, hipModuleLoadData)                                   \
  X(cuModuleUnload, hipModuleUnload)                                       \
  X(cuModuleGetFunction, hipModuleGetFunction)                             \
  X(cuLaunchKernel, hipModuleLaunchKernel)                                 \
  X(cuStreamBeginCapture, hipStreamBeginCapture)                           \
  X(cuStreamEndCapture, hipStreamEndCapture)                               \
  X(cuStreamIsCapturing, hipStreamIsCapturing)                             \
  X(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags)             \
  X(cuGraphLaunch, hipGraphLaunch)                                         \
  X(cuGraphDestroy, hipGraphDestroy)                                       \
  X(cuGraphExecDestroy, hipGraphExecDestroy)

// What CUDA has in another form; name, parameters.
#define GSEL_HIP_OTHERS(X)                                       \
  X(hipGetLastError, ())                                         \
  X(hipGetDevice, (int*))                                        \
  X(hipSetDevice, (int))                                         \
  X(hipStreamGetDevice, (CUstream, int*))                        \
  X(hipMemcpyAsync, (void*, const void*, size_t, int, CUstream)) \
  X(hipMemcpy2DAsync, (void*, size_t, const void*, size_t, size_t, size_t, int, CUstream))

constexpr int kHipMemcpyDefault = 4;

}  // namespace gsel_cuda
