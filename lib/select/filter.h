// select/filter.h: the clauses of a choice that say what a device must be: name, memory, architecture, and the like.
// Refuses to know: how many are needed, and in which order.
#pragma once

#include <string>

#include "select/candidates.h"
#include "select/spec.h"

namespace gsel {

// "80.0 GiB free, 100 GiB asked for": why the unit does not hold to the filter; empty when it does. Filters that list
// devices are not looked at here.
std::string misses(const Inventory& inventory, const Unit& unit, const Clause& clause);

// Shell globs, in any case.
bool glob_matches(const std::string& glob, const std::string& text);

// Why nobody could compute on the unit now: "may not be opened by this user". Empty when it can be used; `code` says
// which refusal it is.
std::string unavailable(const Device& device, gsel_status* code = nullptr);

// By processes, or by a reservation.
bool is_busy(const Device& device);

}  // namespace gsel
