// api/model_handle.h: the object that gsel_model points to. Trainers share the description.
#pragma once

#include <memory>

#include "model/model.h"

struct gsel_model {
  std::shared_ptr<gsel::Model> impl = std::make_shared<gsel::Model>();
};
