// api/select_request.h: unpacks a gsel_resolve_options: the machine, the environment and the request.
#pragma once

#include <gsel/select.h>

#include <memory>

#include "select/inventory/inventory.h"
#include "select/request/request.h"
#include "select/resolve.h"
#include "select/rules/rules.h"

namespace gsel {

struct FullRequest {
  // Detects the machine and reads the process's environment if the request has none. GSEL_ERR_ARG, GSEL_ERR_IO.
  explicit FullRequest(const gsel_resolve_options* given);

  // GSEL_ERR_ALREADY_INITIALIZED when the selection is of this process's own machine and environment and has NVIDIA
  // devices, and the CUDA driver of this process is already initialised with other devices.
  void check(const Selection& selection) const;

  std::shared_ptr<const Inventory> inventory;
  Environment environment;
  Request request;

 private:
  bool own_ = false;  // machine and environment are those of this process
};

}  // namespace gsel
