// api/handles.h: the objects that gsel_comm, gsel_config, gsel_model and gsel_program point to. Trainers share a
// model's description. A program's text is made on first use.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/config.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "program/text/text.h"

struct gsel_comm {
  gsel::Communicator impl;
};
struct gsel_config {
  gsel::Config impl;
};
struct gsel_model {
  std::shared_ptr<gsel::Model> impl = std::make_shared<gsel::Model>();
};
struct gsel_program {
  gsel::Program impl;
  mutable std::once_flag text_made = {};
  mutable std::string text = {};

  mutable std::once_flag placements_made = {};
  mutable std::string placements = {};

  const std::string& printed() const {
    std::call_once(text_made, [this] { text = gsel::to_text(impl); });
    return text;
  }
  const std::string& printed_places() const {
    std::call_once(placements_made, [this] { placements = gsel::placements_table(impl); });
    return placements;
  }
};
