// api/program_handle.h: the object behind gsel_program: a program and its text, which is made on first use.
#pragma once

#include <mutex>
#include <string>

#include "program/program.h"
#include "program/text/text.h"

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
