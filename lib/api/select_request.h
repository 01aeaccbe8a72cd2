// api/select_request.h: a gsel_resolve_request unpacked: the machine, the environment and what is asked.
#pragma once

#include <gsel/select.h>

#include <memory>

#include "select/inventory/inventory.h"
#include "select/request.h"
#include "select/rules/rules.h"

namespace gsel {

struct FullRequest {
  // Detects the machine and reads the process's environment where the request gives none. GSEL_ERR_ARG, GSEL_ERR_IO,
  // GSEL_ERR_ALREADY_INITIALIZED.
  explicit FullRequest(const gsel_resolve_request* given);

  std::shared_ptr<const Inventory> inventory;
  Environment environment;
  Request request;
};

}  // namespace gsel
