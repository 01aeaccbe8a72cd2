// api/model_handle.h: what stands behind gsel_model. Trainers share the description.
#pragma once

#include <memory>

#include "model/model.h"

struct gsel_model {
  std::shared_ptr<gsel::Model> impl = std::make_shared<gsel::Model>();
};
