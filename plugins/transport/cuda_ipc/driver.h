// plugins/transport/cuda_ipc/driver.h: what of the CUDA driver's interface shares memory between processes and lets
// streams wait for a word of memory, found at run time. If a toolkit is installed, tests/fake/cuda/cuda_check.cc
// compares it with cuda.h at compile time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gsel_ipc {

using Pointer = unsigned long long;  // CUdeviceptr
using Handle = unsigned long long;   // CUmemGenericAllocationHandle
using Stream = void*;

constexpr int kSuccess = 0, kOutOfMemory = 2;
constexpr int kPinned = 1, kFileDescriptor = 1, kLocationOfDevice = 1, kReadWrite = 3, kMinimum = 0;
constexpr unsigned kPortable = 1, kMapped = 2, kAtLeast = 0 /* GEQ, cyclic */;
constexpr int kCanUseStreamMemOps = 124;  // CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS

struct Location {
  int type, id;
};
struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* win32;
  struct {
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
struct Access {
  Location location;
  int flags;
};

// name, name in cuda.h, parameters
#define GSEL_IPC_FUNCTIONS(X)                                                                  \
  X(error_text, "cuGetErrorString", (int, const char**))                                       \
  X(current_device, "cuCtxGetDevice", (int*))                                                  \
  X(granularity, "cuMemGetAllocationGranularity", (size_t*, const AllocationProperties*, int)) \
  X(create, "cuMemCreate", (Handle*, size_t, const AllocationProperties*, unsigned long long)) \
  X(release, "cuMemRelease", (Handle))                                                         \
  X(export_handle, "cuMemExportToShareableHandle", (void*, Handle, int, unsigned long long))   \
  X(import_handle, "cuMemImportFromShareableHandle", (Handle*, void*, int))                    \
  X(reserve, "cuMemAddressReserve", (Pointer*, size_t, size_t, Pointer, unsigned long long))   \
  X(free_address, "cuMemAddressFree", (Pointer, size_t))                                       \
  X(map, "cuMemMap", (Pointer, size_t, size_t, Handle, unsigned long long))                    \
  X(unmap, "cuMemUnmap", (Pointer, size_t))                                                    \
  X(set_access, "cuMemSetAccess", (Pointer, size_t, const Access*, size_t))                    \
  X(register_host, "cuMemHostRegister", (void*, size_t, unsigned))                             \
  X(unregister_host, "cuMemHostUnregister", (void*))                                           \
  X(address_of_host, "cuMemHostGetDevicePointer", (Pointer*, void*, unsigned))
// Without these, the host waits and signals in place of streams.
#define GSEL_IPC_STREAM_FUNCTIONS(X)                                            \
  X(wait_value, "cuStreamWaitValue32", (Stream, Pointer, uint32_t, unsigned))   \
  X(write_value, "cuStreamWriteValue32", (Stream, Pointer, uint32_t, unsigned)) \
  X(capture_info, "cuStreamGetCaptureInfo", (Stream, int*, unsigned long long*, void**, const void***, size_t*))

struct Driver {
#define GSEL_IPC_MEMBER(name, symbol, parameters) int(*name) parameters = nullptr;
  GSEL_IPC_FUNCTIONS(GSEL_IPC_MEMBER)
  GSEL_IPC_STREAM_FUNCTIONS(GSEL_IPC_MEMBER)
#undef GSEL_IPC_MEMBER
};

// The driver of this process; nullptr: there is none that shares memory, and *why says what is missing. Any thread.
const Driver* driver(std::string* why);
// Throws unless the result is a success. what: for the text.
void check(const Driver& driver, int result, const std::string& what);

}  // namespace gsel_ipc
