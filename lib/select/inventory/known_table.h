// select/inventory/known_table.h: the rows that known.cc searches, in a file of their own so that the search and the
// figures can be read separately.
#pragma once

#include <span>

#include "select/inventory/known.h"

namespace gsel {

std::span<const Known> known_table();

}  // namespace gsel
