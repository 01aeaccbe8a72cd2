// select/inventory/known.h: figures of well-known accelerators and links, so that a list of devices written by hand
// needs little more than their names. Figures found on a machine always take precedence; this file does not know them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "select/inventory/inventory.h"

namespace gsel {

// What the makers publish of a product. 0 or empty: not published, or not the same for all that bear the name.
struct Known {
  std::string_view vendor;
  std::string_view name;  // words in lower case, joined by blanks
  uint64_t memory_bytes = 0;
  int32_t capability_major = 0;
  int32_t capability_minor = 0;
  std::string_view architecture;
  int32_t compute_units = 0;
  int64_t clock_khz = 0;
  int32_t tiles = 0;
  bool integrated = false;
};

// The product of which `name` holds the most words in a row, in any case and with any punctuation between them; an
// empty one when there is none. A laptop's part shares a desktop part's name and little else, so it needs a row of its
// own.
const Known& known_accelerator(std::string_view vendor, std::string_view name);

std::span<const Known> known_table();  // every row; known_table.cc

// Typical figures of a kind of link from `device`, in one direction; zeros when the kind is not known.
struct LinkFigures {
  double bytes_per_second = 0;
  double latency_s = 0;
};
LinkFigures typical_link(std::string_view kind, const Device& device);

}  // namespace gsel
