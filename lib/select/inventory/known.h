// select/inventory/known.h: figures of well-known accelerators and links, so that a hand-written inventory needs little
// more than device names. Figures found on a machine always take precedence; this file does not know them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "select/inventory/inventory.h"

namespace gsel {

// Published figures of a product. 0 or empty: not published, or not the same for all products of that name.
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

// The product with the most words in a row inside `name`, ignoring case and punctuation; an empty one when there is
// none. A laptop product shares a desktop product's name and little else, so it has its own row.
const Known& known_accelerator(std::string_view vendor, std::string_view name);

std::span<const Known> known_table();  // every row; known_table.cc

// Typical figures of a kind of link from `device`, in one direction; zeros when the kind is unknown.
struct LinkFigures {
  double bytes_per_second = 0;
  double latency_s = 0;
};
LinkFigures typical_link(std::string_view kind, const Device& device);

}  // namespace gsel
