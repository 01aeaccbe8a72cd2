// plugin/search.h: which folders may hold plugins, and which files are in them. Does not know what is in the files.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gsel {

struct PluginFolder {
  std::string path;     // resolved when there is no refusal, else as given
  std::string refusal;  // why it is not searched; empty when it is
  uid_t owner = 0;      // accepted besides root and the effective user
};

// GSEL_PLUGIN_PATH, then the folder beside libgsel; each folder once. Never the current directory.
std::vector<PluginFolder> plugin_folders();

// Paths of the files *.so in a folder, sorted by name. Throws GSEL_ERR_IO.
std::vector<std::string> modules_in(const std::string& folder);

// The path up to its last '/'.
std::string folder_of(const std::string& path);

// The path without links; throws GSEL_ERR_IO.
std::string resolved(const std::string& path);

}  // namespace gsel
