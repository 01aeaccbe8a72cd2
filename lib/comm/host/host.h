// comm/host/host.h: the parts of the built-in backend and the wall around them. Each part fills its functions into the
// table; the table is all anybody else sees.
#pragma once

#include <gsel/plugin.h>

#include <utility>

#include "base/error.h"

namespace gsel::host {

void add_memory(gsel_backend_v1& table);
void add_streams(gsel_backend_v1& table);
void add_kernels(gsel_backend_v1& table);
void add_link(gsel_backend_v1& table);

// Runs a body of the table: exceptions become a status and an object, as for any backend.
template <class Body>
gsel_status answer(gsel_error** err, Body&& body) noexcept {
  if (err) *err = nullptr;
  try {
    std::forward<Body>(body)();
    return GSEL_OK;
  } catch (...) {
    gsel_error* handle = current_exception_to_handle();
    const gsel_status status = code_of(handle);
    if (err)
      *err = handle;
    else
      free_handle(handle);
    return status;
  }
}

}  // namespace gsel::host
