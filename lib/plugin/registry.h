// plugin/registry.h: the plugins of this process. search.h finds them and checks permissions, loader.h loads them.
// Does not know what a plugin does.
#pragma once

#include <gsel/plugin.h>

#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct Candidate {
  std::string path;  // empty for a plugin that the program registered
  std::string kind, name, version;
  std::string refusal;                     // empty if usable, or of a kind that was not requested
  const gsel_plugin_v1* plugin = nullptr;  // set if usable; valid until the process ends
  std::string note{};                      // of the library that it wraps; only list_plugins asks
};

// Registers a plugin of the program, which takes precedence over all files, until the process ends. Its probe runs when
// the plugin is requested. GSEL_ERR_PLUGIN when its tables are not accepted, GSEL_ERR_STATE when another plugin of the
// same kind and name is registered.
void register_plugin(const gsel_plugin_v1& plugin);

// All candidates, loaded or refused: plugins of the program, then the search path in order.
//   kind  0: all are loaded; else only plugins of this kind
std::vector<Candidate> find_plugins(int32_t kind = 0);
// All candidates, with the notes of usable ones.
std::vector<Candidate> list_plugins();

// The first usable plugin of that kind and name: registered ones first, then folder by folder, in each folder NAME.so
// before other files. Other plugins may be opened and read, but none of their functions is called. GSEL_ERR_PLUGIN with
// the reasons when all plugins of that name were refused; GSEL_ERR_NOT_FOUND, with the existing names and the searched
// folders, when there are none.
const gsel_plugin_v1& load_plugin(int32_t kind, std::string_view name);

}  // namespace gsel
