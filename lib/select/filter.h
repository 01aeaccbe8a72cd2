// select/filter.h: the clauses of a choice that say which devices are acceptable: name, memory, architecture, and the
// like. Does not know how many devices are needed, or in which order.
#pragma once

#include <string>

#include "select/candidates.h"
#include "select/request/spec.h"

namespace gsel {

// Why the unit does not pass the filter: "80.0 GiB free, 100 GiB asked for"; empty when it passes. Does not evaluate
// filters that list devices.
std::string misses(const Inventory& inventory, const Unit& unit, const Clause& clause);

// Matches shell globs, ignoring case.
bool glob_matches(const std::string& glob, const std::string& text);

// Why the unit cannot be used: "not to be opened by this user"; with free_only also that it is in use. Empty when it
// can be used; `code` is the code of the refusal.
std::string unavailable(const Device& device, const Unit& unit, bool free_only, gsel_status* code);

// "reserved by process 17", "used by 2 processes"; empty when no use is known.
std::string busy_text(const Device& device, const Unit& unit);

}  // namespace gsel
