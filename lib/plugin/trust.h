// plugin/trust.h: decides whether code from a file may run in this process. It may if only root, the effective user and
// one further owner can have written the file or put it there. Does not know what a plugin is.
#pragma once

#include <sys/types.h>

#include <string>

namespace gsel {

// Both take a resolved path (no links in it) and answer why it cannot be trusted; empty when it can be.
//   owner  accepted besides root and the effective user; geteuid() for none
// A folder that holds plugins, or a file, must not be writable by group or others; nor may any folder above, except
// one that belongs to root and is sticky, as /tmp is: nobody can replace another's entry there.
std::string distrust_of_file(const std::string& path, uid_t owner);
std::string distrust_of_folder(const std::string& path, uid_t owner);

}  // namespace gsel
