/* cuda/driver.h: the functions of NVIDIA's driver that gpu.c calls, declared here, so that no toolkit is needed to
 * build. Where one is installed, tests/fake/cuda/cuda_check.cc compares them with cuda.h. */
#ifndef GPT_CUDA_DRIVER_H
#define GPT_CUDA_DRIVER_H

#include <stddef.h>

/* Our name, cuda.h's, version of the interface, exported symbol, parameters. Each returns a CUresult, 0 for success. */
#define GPT_CUDA_DRIVER(X)                                                                                             \
  X(error_string, cuGetErrorString, 6000, "cuGetErrorString", (int result, const char** text))                         \
  X(device_count, cuDeviceGetCount, 2000, "cuDeviceGetCount", (int* n))                                                \
  X(state, cuDevicePrimaryCtxGetState, 7000, "cuDevicePrimaryCtxGetState", (int device, unsigned* flags, int* active)) \
  X(retain, cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain", (void** context, int device))                  \
  X(push, cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2", (void* context))                                              \
  X(pop, cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2", (void** context))                                                \
  X(current_device, cuCtxGetDevice, 2000, "cuCtxGetDevice", (int* device))                                             \
  X(stream_context, cuStreamGetCtx, 9020, "cuStreamGetCtx", (void* stream, void** context))                            \
  X(load, cuModuleLoadData, 2000, "cuModuleLoadData", (void** module, const void* image))                              \
  X(function, cuModuleGetFunction, 2000, "cuModuleGetFunction", (void** function, void* module, const char* name))     \
  X(launch, cuLaunchKernel, 4000, "cuLaunchKernel",                                                                    \
    (void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,            \
     unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra))                           \
  X(copy, cuMemcpyAsync, 4000, "cuMemcpyAsync",                                                                        \
    (unsigned long long dst, unsigned long long src, size_t bytes, void* stream))                                      \
  X(lock, cuMemHostAlloc, 2020, "cuMemHostAlloc", (void** memory, size_t bytes, unsigned flags))                       \
  X(unlock, cuMemFreeHost, 2000, "cuMemFreeHost", (void* memory))

#endif
