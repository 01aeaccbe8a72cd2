// api/config_handle.h: the object that gsel_config points to.
#pragma once

#include "base/config.h"

struct gsel_config {
  gsel::Config impl;
};
