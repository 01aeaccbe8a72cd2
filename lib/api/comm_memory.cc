// api/comm_memory.cc: memory that the ranks of a communicator reach, of gsel/comm.h.
#include <gsel/comm.h>

#include "api/comm_handle.h"
#include "base/guard.h"

extern "C" {

gsel_status gsel_mem_alloc(gsel_comm* comm, size_t bytes, void** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = gsel::required(comm, "comm").impl.alloc(bytes);
  });
}

gsel_status gsel_mem_free(gsel_comm* comm, void* memory, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.free(memory); });
}

gsel_status gsel_mem_register(gsel_comm* comm, void* memory, size_t bytes, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.register_memory(memory, bytes); });
}

gsel_status gsel_mem_unregister(gsel_comm* comm, void* memory, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(comm, "comm").impl.unregister_memory(memory); });
}

}  // extern "C"
