// fake/cuda/nccl_api.h: the interface of libnccl.so.2 as the double has it, declared here and nowhere else: nothing of
// plugins/transport/nccl is included, so that an error of the plugin's declarations does not meet itself. Where nccl.h
// is installed, nccl_check.cc compares it with both at compile time.
#pragma once

#include <cstddef>

namespace fake_nccl {

using Handle = void*;  // ncclComm_t
using Stream = void*;  // cudaStream_t
struct UniqueId {
  char bytes[128];
};

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};
enum Type : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

constexpr int kSymmetric = 1;  // of a window
constexpr size_t kWindowAlignment = 4096;

constexpr unsigned kConfigMagic = 0xcafebeef;
constexpr int kUndefined = -2147483647 - 1;
// As in 2.14; later versions append.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

// name, parameters; the result is an int unless the name says text.
#define FAKE_NCCL_FUNCTIONS(X)                                                      \
  X(int, ncclGetVersion, (int*))                                                    \
  X(int, ncclGetUniqueId, (UniqueId*))                                              \
  X(int, ncclCommInitRankConfig, (Handle*, int, UniqueId, int, Config*))            \
  X(int, ncclCommGetAsyncError, (Handle, int*))                                     \
  X(int, ncclCommFinalize, (Handle))                                                \
  X(int, ncclCommDestroy, (Handle))                                                 \
  X(int, ncclCommAbort, (Handle))                                                   \
  X(const char*, ncclGetErrorString, (int))                                         \
  X(const char*, ncclGetLastError, (Handle))                                        \
  X(int, ncclGroupStart, ())                                                        \
  X(int, ncclGroupEnd, ())                                                          \
  X(int, ncclAllReduce, (const void*, void*, size_t, int, int, Handle, Stream))     \
  X(int, ncclReduce, (const void*, void*, size_t, int, int, int, Handle, Stream))   \
  X(int, ncclReduceScatter, (const void*, void*, size_t, int, int, Handle, Stream)) \
  X(int, ncclBroadcast, (const void*, void*, size_t, int, int, Handle, Stream))     \
  X(int, ncclAllGather, (const void*, void*, size_t, int, Handle, Stream))          \
  X(int, ncclSend, (const void*, size_t, int, int, Handle, Stream))                 \
  X(int, ncclRecv, (void*, size_t, int, int, Handle, Stream))                       \
  X(int, ncclMemAlloc, (void**, size_t))                                            \
  X(int, ncclMemFree, (void*))                                                      \
  X(int, ncclCommRegister, (Handle, void*, size_t, void**))                         \
  X(int, ncclCommDeregister, (Handle, void*))                                       \
  X(int, ncclCommWindowRegister, (Handle, void*, size_t, void**, int))              \
  X(int, ncclCommWindowDeregister, (Handle, void*))                                 \
  X(int, ncclCommShrink, (Handle, int*, int, Handle*, Config*, int))

#define FAKE_NCCL_DECLARE(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result name parameters;
#ifndef NCCL_H_  // which declares them as well
FAKE_NCCL_FUNCTIONS(FAKE_NCCL_DECLARE)
#endif

}  // namespace fake_nccl
