// select/request/order.h: the orders that a request can ask for, each with its tie-break, so that the same machine
// always gives the same answer. Does not know what is visible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/inventory/unit.h"

namespace gsel {

enum class Order {
  visible,    // as the environment orders, else bus order
  pci,        // bus order
  fastest,    // most compute units x clock first, then bus order
  most_free,  // most free memory first, then bus order
  near,       // linked closely; see nearest_of
};

// GSEL_ERR_SYNTAX for another word.
Order parse_order(const std::optional<std::string>& text);

// Sorts units of one host. `near` begins with the first unit in bus order; each next unit has the least total distance
// to those before it, then bus order; with more than 1,024 units it is bus order.
std::vector<Unit> ordered(const Inventory& inventory, std::vector<Unit> units, Order order);

// The `count` units of one host with the least total distance between them, in bus order; ties go to the first in bus
// order. Exact for up to 16 units; for more, grown greedily from each of the first 64; for more than 1,024, the first
// units in bus order.
std::vector<Unit> nearest_of(const Inventory& inventory, std::vector<Unit> units, size_t count);

}  // namespace gsel
