// select/filter.h: the clauses of a choice that say which devices are acceptable: name, memory, architecture, and the
// like. Does not know how many are needed, and in which order.
#pragma once

#include <string>

#include "select/candidates.h"
#include "select/request/spec.h"

namespace gsel {

// "80.0 GiB free, 100 GiB asked for": why the unit does not hold to the filter; empty when it does. Filters that list
// devices are not looked at here.
std::string misses(const Inventory& inventory, const Unit& unit, const Clause& clause);

// Shell globs, in any case.
bool glob_matches(const std::string& glob, const std::string& text);

// Why the unit cannot be had: "not to be opened by this user"; with free_only also that it is in use. Empty when it
// can; `code` says which refusal it is.
std::string unavailable(const Device& device, const Unit& unit, bool free_only, gsel_status* code);

// "reserved by process 17", "used by 2 processes"; empty when it is in use by nobody that is known.
std::string busy_text(const Device& device, const Unit& unit);

}  // namespace gsel
