// comm/shm/join/holder.h: who holds the name of a local socket that takes no connection, because too many wait there.
// Whoever connects learns the other side's user from the socket; this asks the kernel. Does not know what the name is
// for.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace gsel::shm {

// The user of the process that listens under an abstract name; nullopt: nobody, or the kernel does not tell.
std::optional<uid_t> user_of_listener(const std::string& name);

}  // namespace gsel::shm
