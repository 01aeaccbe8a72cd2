// comm/shm/name.h: names of communicators in texts. Does not know what a communicator is: it tells two of them apart by
// the address of their arena in this process.
#pragma once

#include <string>
#include <string_view>

#include "comm/shm/memory/arena.h"

namespace gsel::shm {

// Of one that this process founds: `given`, else "world", "world-2", ...
std::string founded_name(std::string_view given);
// Of one made from another: "world.split2:0". Cut in front where it is too long for kNameBytes.
std::string derived_name(const char* origin, std::string_view made);

// The communicators of this process: those of ranks that are its threads share an arena.
void enter_communicator(const Arena& arena);
void leave_communicator(const Arena& arena) noexcept;
bool several_communicators();

}  // namespace gsel::shm
