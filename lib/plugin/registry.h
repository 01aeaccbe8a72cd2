// plugin/registry.h: the plugins of this process. search.h finds them, trust.h checks permissions, loader.h loads them.
// Does not know what a plugin does.
#pragma once

#include <gsel/plugin.h>

#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct Candidate {
  std::string path, kind, name, version;
  std::string refusal;                     // empty when usable, or of a kind that was not asked for
  const gsel_plugin_v1* plugin = nullptr;  // set when usable; valid until the process ends
};

// Every candidate on the search path, loaded or refused, in search order.
//   kind  0: all are loaded; else those of this kind
std::vector<Candidate> find_plugins(int32_t kind = 0);

// The first usable plugin of that kind and name: folder by folder, in each NAME.so before files of other names. Other
// plugins are at most opened and read, none of their functions is called. GSEL_ERR_PLUGIN when the ones of that name
// were refused (with the reasons), GSEL_ERR_NOT_FOUND when there is none (with the names there are and the folders
// searched).
const gsel_plugin_v1& load_plugin(int32_t kind, std::string_view name);

}  // namespace gsel
