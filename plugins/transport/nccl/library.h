// plugins/transport/nccl/library.h: the functions of NCCL, loaded at run time. nccl.h is not needed to build: these are
// the declarations that have not changed since NCCL 2.14; later functions are optional.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "vendor.h"

namespace gsel_nccl {

using Comm = void*;
using Stream = void*;  // cudaStream_t
struct UniqueId {
  char bytes[128];
};

// Results. 8 is a timeout from 2.30 on.
constexpr int kSuccess = 0, kUnhandledCudaError = 1, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5,
              kRemoteError = 6, kInProgress = 7, kTimeout = 8;
constexpr int kTimeoutSince = 23000;

// ncclConfig_t in its first version. NCCL fills fields of later versions with defaults.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

#define GSEL_NCCL_FUNCTIONS(X)                                                    \
  X(int, ncclGetVersion, (int*))                                                  \
  X(int, ncclGetUniqueId, (UniqueId*))                                            \
  X(int, ncclCommInitRankConfig, (Comm*, int, UniqueId, int, Config*))            \
  X(int, ncclCommGetAsyncError, (Comm, int*))                                     \
  X(int, ncclCommFinalize, (Comm))                                                \
  X(int, ncclCommDestroy, (Comm))                                                 \
  X(int, ncclCommAbort, (Comm))                                                   \
  X(const char*, ncclGetErrorString, (int))                                       \
  X(const char*, ncclGetLastError, (Comm))                                        \
  X(int, ncclGroupStart, ())                                                      \
  X(int, ncclGroupEnd, ())                                                        \
  X(int, ncclAllReduce, (const void*, void*, size_t, int, int, Comm, Stream))     \
  X(int, ncclReduce, (const void*, void*, size_t, int, int, int, Comm, Stream))   \
  X(int, ncclReduceScatter, (const void*, void*, size_t, int, int, Comm, Stream)) \
  X(int, ncclBroadcast, (const void*, void*, size_t, int, int, Comm, Stream))     \
  X(int, ncclAllGather, (const void*, void*, size_t, int, Comm, Stream))          \
  X(int, ncclSend, (const void*, size_t, int, int, Comm, Stream))                 \
  X(int, ncclRecv, (void*, size_t, int, int, Comm, Stream))
// Since 2.19.
#define GSEL_NCCL_LATER(X)                                \
  X(int, ncclMemAlloc, (void**, size_t))                  \
  X(int, ncclMemFree, (void*))                            \
  X(int, ncclCommRegister, (Comm, void*, size_t, void**)) \
  X(int, ncclCommDeregister, (Comm, void*))
// Since 2.27. A Window belongs to NCCL.
using Window = void*;
#define GSEL_NCCL_WINDOWS(X)                                                \
  X(int, ncclCommWindowRegister, (Comm, void*, size_t, Window*, int flags)) \
  X(int, ncclCommWindowDeregister, (Comm, Window))
constexpr int kSymmetric = 1;              // NCCL_WIN_COLL_SYMMETRIC
constexpr size_t kWindowAlignment = 4096;  // NCCL_WIN_REQUIRED_ALIGNMENT

struct Library {
#define GSEL_NCCL_MEMBER(result, name, arguments) result(*name) arguments = nullptr;
  GSEL_NCCL_FUNCTIONS(GSEL_NCCL_MEMBER)
  GSEL_NCCL_LATER(GSEL_NCCL_MEMBER)
  GSEL_NCCL_WINDOWS(GSEL_NCCL_MEMBER)
#undef GSEL_NCCL_MEMBER
  bool has_shrink = false, has_grow = false, has_suspend = false, has_put = false;  // which gsel does not call
  std::string path;                                                                 // of the file
  bool has_idle_windows = false;  // has the functions, see kUsesWindows
  bool was_loaded = false;        // by the program, which may have used it
};

// Such as 22809; 0: unknown.
int version_of(const Library& nccl);

// "NCCL 2.28.9: uses symmetric windows; has shrink, which gsel does not use; lacks grow (2.29), ..."
std::string features_of(const Library& nccl, int version);
inline bool allocates(const Library& nccl) {
  return nccl.ncclMemAlloc && nccl.ncclMemFree;
}
inline bool uses_windows(const Library& nccl) {
  return kUsesWindows && allocates(nccl) && nccl.ncclCommWindowRegister && nccl.ncclCommWindowDeregister;
}

// NCCL of this process, loaded by the first call; nullptr if there is none, with the reason in *why. Calls none of its
// functions. Any thread.
const Library* library(std::string* why);

}  // namespace gsel_nccl
