// plugin/search.h: lists the folders that may hold plugins, and the files in them, and decides whether code from a file
// may run in this process. Does not know what is in the files.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gsel {

struct PluginFolder {
  std::string path;     // resolved unless refused, else as given
  std::string refusal;  // why it is not searched; else empty
  uid_t owner = 0;      // accepted in addition to root and the effective user
};

// GSEL_PLUGIN_PATH, then the folder next to libgsel; each folder once. Never the current directory.
std::vector<PluginFolder> plugin_folders();

// Paths of the files *.so in a folder, sorted by name. Throws GSEL_ERR_IO.
std::vector<std::string> modules_in(const std::string& folder);

// The path up to its last '/'.
std::string folder_of(const std::string& path);

// The path without links; throws GSEL_ERR_IO.
std::string resolved(const std::string& path);

// ---- trust ----------------------------------------------------------------------------------------------------------
// Only root, the effective user and one further owner may have been able to write a file or put it in its place.

// Both functions take a resolved path (without links) and return the reason not to trust it; empty when it is trusted.
//   owner  accepted in addition to root and the effective user; geteuid() for none
// The file or plugin folder must not be writable by group or others. This also holds for all folders above it, except
// for sticky folders owned by root, such as /tmp, where users cannot replace each other's entries.
std::string distrust_of_file(const std::string& path, uid_t owner);
std::string distrust_of_folder(const std::string& path, uid_t owner);

}  // namespace gsel
