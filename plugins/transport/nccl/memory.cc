// plugins/transport/nccl/memory.cc: memory of the device that NCCL knows, so that it copies nothing on the way. A
// version that registers nothing works on any memory of the device.
#include "link.h"

namespace gsel_nccl {
namespace {

template <class Body>
gsel_status run(gsel_link* link, gsel_error** err, Body&& body) {
  try {
    const Current current(link->device, link->device_ctx);
    const std::lock_guard lock(*link->mutex);
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

gsel_status link_alloc(gsel_link* link, uint64_t bytes, void** out, gsel_error** err) {
  *out = nullptr;
  return run(link, err, [&](const Library& nccl) {
    const bool by_nccl = nccl.ncclMemAlloc && nccl.ncclMemFree;
    if (by_nccl)
      check(nccl, nccl.ncclMemAlloc(out, bytes ? bytes : 1), std::to_string(bytes) + " bytes of memory", link->comm);
    else
      must([&](gsel_error** foreign) {
        return link->device->alloc(link->device_ctx, GSEL_MEMORY_DEVICE, bytes, out, foreign);
      });
    link->allocations[*out] = by_nccl;
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
