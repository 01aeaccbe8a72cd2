// plugins/transport/nccl/memory.cc: device memory that is allocated by NCCL or registered with it, for zero-copy calls.
// A version of NCCL without registration works on any device memory.
#include <string_view>

#include "link.h"

namespace gsel_nccl {
namespace {

template <class Body>
gsel_status run(gsel_link* link, gsel_error** err, Body&& body) {
  try {
    const Current current(link->device, link->device_ctx);
    const std::lock_guard launching(*link->launching);
    const std::lock_guard inside(link->inside);
    if (link->aborting) fail(GSEL_ERR_ABORTED, "nccl: the communicator was ended");
    body(*link->nccl);
    return GSEL_OK;
  } catch (...) {
    return failed(link->host, err);
  }
}

bool allocates(const Library& nccl) {
  return nccl.ncclMemAlloc && nccl.ncclMemFree;
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
      fail(GSEL_ERR_NOMEM, "nccl: " + what + " were asked for, and the device has no such amount left");
    check(*nccl, result, what);
    return GSEL_OK;
  } catch (...) {
    return failed(host, err);
  }
}

void memory_free(void* ctx, const gsel_device_v1* device, void* device_ctx, void* memory) {
  const Library& nccl = *static_cast<Transport*>(ctx)->nccl;
  if (!allocates(nccl)) return device->free(device_ctx, memory);
  if (hold_back(memory)) return;
  try {
    const Current current(device, device_ctx);
    nccl.ncclMemFree(memory);
  } catch (...) {  // the device has failed
  }
}

gsel_status window_register(gsel_link* link, void* memory, uint64_t bytes, gsel_window** out, gsel_error** err) {
  *out = nullptr;
  return run(link, err, [&](const Library& nccl) {
    if (!nccl.ncclCommRegister || !nccl.ncclCommDeregister) return;
    void* handle = nullptr;
    check(nccl, nccl.ncclCommRegister(link->comm, memory, bytes, &handle),
          "registering " + std::to_string(bytes) + " bytes", link->comm);
    link->windows[handle] = memory;
    *out = static_cast<gsel_window*>(handle);
  });
}

void window_release(gsel_link* link, gsel_window* window) {
  if (!window) return;
  run(link, nullptr, [&](const Library& nccl) {
    nccl.ncclCommDeregister(link->comm, window);
    link->windows.erase(window);
  });
}

void* link_native(gsel_link* link) {
  return link->comm;
}

}  // namespace

void add_memory(gsel_transport_v2& table) {
  table.memory_alloc = memory_alloc;
  table.memory_free = memory_free;
  table.window_register = window_register;
  table.window_release = window_release;
  table.link_native = link_native;
}

}  // namespace gsel_nccl
