// fake/cuda/nccl_memory.cc: memory and registrations of libnccl.so.2, and the texts of its errors; see nccl_comm.h.
// Memory that NCCL has registered is in use until it is deregistered, or until its communicator has been freed.
#include <algorithm>
#include <mutex>
#include <set>

#include "nccl_comm.h"

using fake_cuda::Machine;
using namespace fake_nccl;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

thread_local std::string memory_error;

// Memory of ncclMemAlloc; the machine's mutex is held.
std::set<uintptr_t>& allocated() {
  static auto* const all = new std::set<uintptr_t>;
  return *all;
}

}  // namespace

bool fake_nccl::is_allocated(uintptr_t begin) {
  return allocated().contains(begin);
}

void fake_nccl::let_go(const Comm& comm, const void* memory, uint64_t bytes, const char* function) {
  const auto begin = reinterpret_cast<uintptr_t>(memory), end = begin + bytes;
  for (const Node* node : comm.nodes)
    for (const Call& call : node->calls()) {
      const auto touches = [&](const char* own, uint64_t n) {
        const auto at = reinterpret_cast<uintptr_t>(own);
        return at < end && begin < at + n;
      };
      if (touches(call.send, call.send_bytes) || touches(call.recv, call.recv_bytes))
        Machine::get().violation(std::string(function) + " of memory that " + call.name + " still uses");
    }
}

EXPORT const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "as the fake nccl was told";
  }
}

EXPORT const char* ncclGetLastError(Handle handle) {
  return !memory_error.empty() ? memory_error.c_str() : handle ? of(handle).last_error.c_str() : "";
}

// ---- memory ---------------------------------------------------------------------------------------------------------

EXPORT int ncclMemAlloc(void** out, size_t bytes) {
  unsigned long long memory = 0;
  const int result = fake_cuda::cuMemAlloc_v2(&memory, bytes);
  *out = reinterpret_cast<void*>(memory);
  memory_error = result == fake_cuda::kOk            ? ""
                 : result == fake_cuda::kOutOfMemory ? "Cuda failure 2 'out of memory'"
                                                     : "Cuda failure " + std::to_string(result);
  if (result != fake_cuda::kOk) return kUnhandledCudaError;
  const std::lock_guard lock(Machine::get().mutex());
  allocated().insert(memory);
  return kSuccess;
}

EXPORT int ncclMemFree(void* memory) {
  {
    const std::lock_guard lock(Machine::get().mutex());
    for (const Comm& comm : all_comms())
      if (comm.registered.contains(memory))
        Machine::get().violation("ncclMemFree of memory that the communicator of rank " + std::to_string(comm.rank) +
                                 " has registered, and which is in use until all ranks of the process have let go");
    allocated().erase(reinterpret_cast<uintptr_t>(memory));
  }
  return fake_cuda::cuMemFree_v2(reinterpret_cast<uintptr_t>(memory)) == fake_cuda::kOk ? kSuccess : kInvalidArgument;
}

EXPORT int ncclCommRegister(Handle handle, void* memory, size_t bytes, void** out) {
  Comm& comm = of(handle);
  const Inside inside(comm, "ncclCommRegister");
  const std::lock_guard lock(Machine::get().mutex());
  *out = nullptr;
  if (text_in("GSEL_FAKE_NCCL_REGISTERS") == "null") return kSuccess;
  if (text_in("GSEL_FAKE_NCCL_REGISTERS") == "refuses") return kInvalidArgument;
  const auto* found = Machine::get().find(reinterpret_cast<uintptr_t>(memory));
  if (!found || reinterpret_cast<uintptr_t>(memory) + bytes > found->end) return kInvalidArgument;
  Comm::Registration& registration = comm.registered[memory];
  registration = {std::max<uint64_t>(registration.bytes, bytes), registration.references + 1};
  *out = memory;
  return kSuccess;
}

EXPORT int ncclCommDeregister(Handle handle, void* registration) {
  Comm& comm = of(handle);
  const Inside inside(comm, "ncclCommDeregister");
  const std::lock_guard lock(Machine::get().mutex());
  if (!registration) return kSuccess;
  const auto found = comm.registered.find(registration);
  if (found == comm.registered.end()) return kInvalidUsage;
  if (--found->second.references > 0) return kSuccess;
  let_go(comm, registration, found->second.bytes, "ncclCommDeregister");
  comm.registered.erase(found);
  return kSuccess;
}
