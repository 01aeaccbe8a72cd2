// plugin/registry.h: the plugins of this process. search.h finds them, trust.h checks permissions, loader.h loads them.
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
  std::string refusal;                     // empty when usable, or of a kind that was not asked for
  const gsel_plugin_v1* plugin = nullptr;  // set when usable; valid until the process ends
};

// Makes a plugin of the program known before all files, for as long as the process lives. Its probe runs when it is
// asked for. GSEL_ERR_PLUGIN when its tables are not accepted, GSEL_ERR_STATE when another of its kind and name is
// registered.
void register_plugin(const gsel_plugin_v1& plugin);

// Every candidate, loaded or refused: those of the program, then the search path in order.
//   kind  0: all are loaded; else those of this kind
std::vector<Candidate> find_plugins(int32_t kind = 0);

// The first usable plugin of that kind and name: registered, else folder by folder, in each NAME.so before files of
// other names. Other plugins are at most opened and read, none of their functions is called. GSEL_ERR_PLUGIN when the
// ones of that name were refused (with the reasons), GSEL_ERR_NOT_FOUND when there is none (with the names there are
// and the folders searched).
const gsel_plugin_v1& load_plugin(int32_t kind, std::string_view name);

}  // namespace gsel
