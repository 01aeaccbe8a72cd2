// api/handles.h: the objects that gsel_comm, gsel_config and gsel_model point to. Trainers share a model's description.
#pragma once

#include <memory>

#include "base/config.h"
#include "comm/communicator.h"
#include "model/model.h"

struct gsel_comm {
  gsel::Communicator impl;
};
struct gsel_config {
  gsel::Config impl;
};
struct gsel_model {
  std::shared_ptr<gsel::Model> impl = std::make_shared<gsel::Model>();
};
