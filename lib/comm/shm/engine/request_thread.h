// comm/shm/engine/request_thread.h: creates a thread for requests, with an error text for failure.
#pragma once

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/threads.h"

namespace gsel::shm {

template <class Body>
std::thread request_thread(Body&& body) {
  try {
    return quiet_thread(std::forward<Body>(body));
  } catch (const std::system_error& e) {
    fail(GSEL_ERR_NOMEM, "a request needs a thread and none could be started: {}", errno_text(e.code().value()));
  }
}

}  // namespace gsel::shm
