// select/inventory/known_table.h: the rows that known.cc searches, apart so that the search and the figures can each be
// read alone.
#pragma once

#include <span>

#include "select/inventory/known.h"

namespace gsel {

std::span<const Known> known_table();

}  // namespace gsel
