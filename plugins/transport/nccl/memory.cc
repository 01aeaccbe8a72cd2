// plugins/transport/nccl/memory.cc: device memory that is allocated by NCCL, and the table's functions for memory that
// is registered with it (register.cc).
#include <map>
#include <mutex>

#include "link.h"

namespace gsel_nccl {
namespace {

// Memory of ncclMemAlloc, by address.
struct Allocations {
  std::mutex mutex;
  std::map<uintptr_t, uint64_t> bytes;
};
Allocations& allocations() {
  static auto* the_allocations = new Allocations;  // never destroyed: memory may be freed after main
  return *the_allocations;
}

gsel_status memory_alloc(void* ctx, const gsel_device_v1* device, void* device_ctx, uint64_t bytes, void** out,
                         gsel_error** err) {
  *out = nullptr;
  const auto& [host, nccl, version, order] = *static_cast<Transport*>(ctx);
  if (!allocates(*nccl)) return device->alloc(device_ctx, GSEL_MEMORY_DEVICE, bytes, out, err);
  try {
    const Current current(device, device_ctx);
    const int result = nccl->ncclMemAlloc(out, bytes);
    const std::string what = std::to_string(bytes) + " bytes of memory";
    if (is_out_of_memory(*nccl, result, nullptr))
      fail(GSEL_ERR_NOMEM, GSEL_NCCL_PLUGIN ": " + what + " were asked for, and the device has no such amount left");
    check(*nccl, result, what);
    const std::lock_guard lock(allocations().mutex);
    allocations().bytes[reinterpret_cast<uintptr_t>(*out)] = bytes;
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

void memory_free(void* ctx, const gsel_device_v1* device, void* device_ctx, void* memory) {
  const Library& nccl = *static_cast<Transport*>(ctx)->nccl;
  if (!allocates(nccl)) return device->free(device_ctx, memory);
  {
    const std::lock_guard lock(allocations().mutex);
    allocations().bytes.erase(reinterpret_cast<uintptr_t>(memory));
  }
  if (hold_back(memory)) return;
  try {
    const Current current(device, device_ctx);
    nccl.ncclMemFree(memory);
  } catch (...) {  // the device has failed
  }
}

gsel_status window_register(gsel_link* link, void* memory, uint64_t bytes, gsel_window** out, gsel_error** err) {
  *out = nullptr;
  try {
    const Current current(link->device, link->device_ctx);
    *out = register_memory(*link, memory, bytes);
    return GSEL_OK;
  } catch (...) {
    return failed(link->host, err);
  }
}

void window_release(gsel_link* link, gsel_window* window) {
  if (!window) return;
  try {
    const Current current(link->device, link->device_ctx);
    const std::lock_guard launching(*link->launching);
    const std::lock_guard inside(link->inside);
    if (link->aborting) return;
    release_window(*link, window);
  } catch (...) {  // the device has failed
  }
}

void* link_native(gsel_link* link) {
  return link->comm;
}

}  // namespace

Allocation allocation_of(const void* memory) {
  const std::lock_guard lock(allocations().mutex);
  const auto at = reinterpret_cast<uintptr_t>(memory);
  auto found = allocations().bytes.upper_bound(at);
  if (found == allocations().bytes.begin()) return {};
  --found;
  return at - found->first < found->second ? Allocation{found->first, found->second} : Allocation{};
}

void add_memory(gsel_transport_v2& table) {
  table.memory_alloc = memory_alloc;
  table.memory_free = memory_free;
  table.window_register = window_register;
  table.window_release = window_release;
  table.link_native = link_native;
}

}  // namespace gsel_nccl
