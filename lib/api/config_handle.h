// api/config_handle.h: what stands behind gsel_config.
#pragma once

#include "base/config.h"

struct gsel_config {
  gsel::Config impl;
};
