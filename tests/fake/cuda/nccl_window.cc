// fake/cuda/nccl_window.cc: windows of libnccl.so.2; see nccl_comm.h. All ranks make one together, in allocations of
// ncclMemAlloc. NCCL gives it the lowest free place of an address space that each rank keeps for itself: ranks that
// make or release windows in other orders, or of other memory, get places that do not lie alike, which NCCL does not
// notice.
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "driver.h"
#include "nccl_comm.h"

using fake_cuda::Machine;
using namespace fake_nccl;

namespace {

uintptr_t address(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory);
}

// Not the handle of a registration.
void* handle_of(void* memory) {
  return static_cast<char*>(memory) + 1;
}

uint64_t free_place(const Comm& comm) {
  uint64_t place = 0;
  while (std::ranges::any_of(comm.windows, [&](const auto& w) { return w.second.place == place; })) ++place;
  return place;
}

void register_in(Comm& comm, void* memory, uint64_t bytes) {
  Comm::Registration& registration = comm.registered[memory];
  registration = {std::max(registration.bytes, bytes), registration.references + 1};
}

void compare_places(const Comm& comm, uint64_t number) {
  const WindowPlace& own = comm.own().window[number % 2];
  for (int q = 0; q < comm.clique->n_ranks(); ++q) {
    const WindowPlace& other = comm.clique->rank(q).window[number % 2];
    if (other.allocation != own.allocation || other.offset != own.offset || other.place != own.place)
      Machine::get().violation("windows of rank " + std::to_string(comm.rank) + " and rank " + std::to_string(q) +
                               " that do not lie alike");
  }
}

}  // namespace

uint64_t Comm::place_of(const void* memory, uint64_t n) const {
  for (const auto& [begin, window] : windows)
    if (address(begin) <= address(memory) && address(memory) + n <= address(begin) + window.bytes)
      return window.number << 48 ^ (address(memory) - address(begin) + 1);
  return 0;
}

bool fake_nccl::makes_window(Comm& comm) {
  const auto& [memory, out, window] = *comm.making;
  const std::string how = text_in("GSEL_FAKE_NCCL_WINDOWS");
  if (how == "fails") {
    comm.making.reset();
    comm.last_error = "Cuda failure 801 'operation not supported'";
    comm.state = kUnhandledCudaError;
    return false;
  }
  if (comm.own().windows < window.number) {
    WindowPlace& own = comm.own().window[window.number % 2];
    const auto* found = Machine::get().find(address(memory));
    own.allocation = found->end - found->begin;
    own.offset = address(memory) - found->begin;
    own.place = window.place;
    comm.own().windows = window.number;
  }
  for (int q = 0; q < comm.clique->n_ranks(); ++q)
    if (comm.clique->rank(q).windows < window.number) return false;
  compare_places(comm, window.number);
  if (how != "null") {
    register_in(comm, memory, window.bytes);
    if (how != "plain") comm.windows[memory] = window;
    *out = how == "plain" ? memory : handle_of(memory);
  }
  comm.making.reset();
  return true;
}

EXPORT int ncclCommWindowRegister(Handle handle, void* memory, size_t bytes, void** out, int flags) {
  Comm& comm = of(handle);
  const Inside inside(comm, "ncclCommWindowRegister");
  std::unique_lock lock(Machine::get().mutex());
  if (comm.is_aborted) return kInvalidUsage;
  if (comm.state != kSuccess) return comm.state == kInProgress ? int{kInvalidArgument} : comm.state.load();
  if (text_in("GSEL_FAKE_NCCL_WINDOWS") == "refuses") return kInvalidArgument;
  if (!memory || bytes == 0) return kSuccess;
  const auto* found = Machine::get().find(address(memory));
  if (!found || address(memory) + bytes > found->end || !is_allocated(found->begin)) return kUnhandledCudaError;
  if ((address(memory) - found->begin) % kWindowAlignment != 0 || flags != kSymmetric) return kInvalidArgument;
  for (const auto& [begin, window] : comm.windows)
    if (address(begin) < address(memory) + bytes && address(memory) < address(begin) + window.bytes)
      Machine::get().violation("ncclCommWindowRegister of memory that is in a window");
  comm.making = {memory, out, {bytes, comm.own().windows + 1, free_place(comm)}};
  if (!comm.is_blocking) {
    comm.polls = number_in("GSEL_FAKE_NCCL_POLLS", 3);
    return comm.state = kInProgress;
  }
  while (!makes_window(comm)) {
    if (comm.state != kSuccess || comm.is_aborted) return comm.is_aborted ? int{kInternalError} : comm.state.load();
    lock.unlock();
    usleep(50);
    lock.lock();
  }
  return kSuccess;
}

EXPORT int ncclCommWindowDeregister(Handle handle, void* window) {
  if (!window) return kSuccess;
  Comm& comm = of(handle);
  void* memory = window;
  {
    const Inside inside(comm, "ncclCommWindowDeregister");
    const std::lock_guard lock(Machine::get().mutex());
    const auto found = std::ranges::find_if(comm.windows, [&](const auto& w) { return handle_of(w.first) == window; });
    if (found != comm.windows.end()) {
      memory = found->first;
      let_go(comm, memory, found->second.bytes, "ncclCommWindowDeregister");
      comm.windows.erase(found);
    }
  }
  return ncclCommDeregister(handle, memory);
}

// What tests ask: windows of this process.
EXPORT int fake_nccl_windows() {
  const std::lock_guard lock(Machine::get().mutex());
  int n = 0;
  for (const Comm& comm : all_comms()) n += static_cast<int>(comm.windows.size());
  return n;
}

// Found by those who look for it.
EXPORT int ncclCommShrink(Handle, int*, int, Handle*, Config*, int) {
  die("ncclCommShrink, which this double does not have");
}
