// plugin/trust.h: decides whether code from a file may run in this process: only root, the effective user and one
// further owner may have been able to write the file or put it in its place. Does not know what a plugin is.
#pragma once

#include <sys/types.h>

#include <string>

namespace gsel {

// Both functions take a resolved path (without links) and return the reason not to trust it; empty when it is trusted.
//   owner  accepted in addition to root and the effective user; geteuid() for none
// The file or plugin folder must not be writable by group or others. This also holds for every folder above it, except
// for sticky folders owned by root, such as /tmp, where users cannot replace each other's entries.
std::string distrust_of_file(const std::string& path, uid_t owner);
std::string distrust_of_folder(const std::string& path, uid_t owner);

}  // namespace gsel
