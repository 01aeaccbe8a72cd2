// plugins/transport/nccl/memory.cc: memory of the device that NCCL knows, so that it copies nothing on the way. A
// version that registers nothing works on any memory of the device.
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

void register_here(gsel_link& link, void* memory, uint64_t bytes) {
  if (!link.nccl->ncclCommRegister) return;
  void* handle = nullptr;
  check(*link.nccl, link.nccl->ncclCommRegister(link.comm, memory, bytes, &handle),
        "registering " + std::to_string(bytes) + " bytes", link.comm);
  link.registrations[memory] = handle;
}

void unregister_here(gsel_link& link, void* memory) {
  const auto found = link.registrations.find(memory);
  if (found == link.registrations.end()) return;
  link.nccl->ncclCommDeregister(link.comm, found->second);
  link.registrations.erase(found);
}

// As CUDA says it in NCCL's last words, where NCCL itself has one number for all that CUDA refuses.
bool is_out_of_memory(const Library& nccl, int result, Comm comm) {
  const char* last = result == kUnhandledCudaError ? nccl.ncclGetLastError(comm) : nullptr;
  return last && std::string_view(last).find("out of memory") != std::string_view::npos;
}

void zero(const gsel_link& link, void* memory, uint64_t bytes) {
  const gsel_device_v1& device = *link.device;
  must([&](gsel_error** err) { return device.zero(link.device_ctx, memory, bytes, link.stream, err); });
  must([&](gsel_error** err) { return device.stream_wait(link.device_ctx, link.stream, err); });
}

gsel_status link_alloc(gsel_link* link, uint64_t bytes, void** out, gsel_error** err) {
  *out = nullptr;
  return run(link, err, [&](const Library& nccl) {
    const bool by_nccl = nccl.ncclMemAlloc && nccl.ncclMemFree;
    if (by_nccl) {
      const int result = nccl.ncclMemAlloc(out, bytes ? bytes : 1);
      const std::string what = std::to_string(bytes) + " bytes of memory";
      if (is_out_of_memory(nccl, result, link->comm))
        fail(GSEL_ERR_NOMEM, "nccl: " + what + " were asked for, and the device has no such amount left");
      check(nccl, result, what, link->comm);
    } else {
      must([&](gsel_error** foreign) {
        return link->device->alloc(link->device_ctx, GSEL_MEMORY_DEVICE, bytes, out, foreign);
      });
    }
    link->allocations[*out] = by_nccl;
    zero(*link, *out, bytes);
    if (by_nccl) register_here(*link, *out, bytes);
  });
}

gsel_status link_free(gsel_link* link, void* memory, gsel_error** err) {
  if (!memory) return GSEL_OK;
  return run(link, err, [&](const Library& nccl) {
    const auto found = link->allocations.find(memory);
    if (found == link->allocations.end()) fail(GSEL_ERR_ARG, "nccl: the memory to free is not of gsel_mem_alloc");
    unregister_here(*link, memory);
    found->second ? static_cast<void>(nccl.ncclMemFree(memory)) : link->device->free(link->device_ctx, memory);
    link->allocations.erase(found);
  });
}

gsel_status link_register(gsel_link* link, void* memory, uint64_t bytes, gsel_error** err) {
  return run(link, err, [&](const Library&) { register_here(*link, memory, bytes); });
}

gsel_status link_unregister(gsel_link* link, void* memory, gsel_error** err) {
  return run(link, err, [&](const Library&) { unregister_here(*link, memory); });
}

}  // namespace

void add_memory(gsel_transport_v1& table) {
  table.link_alloc = link_alloc;
  table.link_free = link_free;
  table.link_register = link_register;
  table.link_unregister = link_unregister;
}

}  // namespace gsel_nccl
