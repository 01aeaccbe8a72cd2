// plugin/loader.h: opens one module and checks what it exports, field by field, before anything of it is called.
// Does not know where the file came from and whether it may be trusted.
#pragma once

#include <gsel/plugin.h>

#include <string>

namespace gsel {

struct Module {
  std::string kind, name, version;         // as far as they could be read
  std::string refusal;                     // empty when usable
  const gsel_plugin_v1* plugin = nullptr;  // set when usable
};

// `path` is resolved and absolute. A module that was refused before any of its functions ran is unloaded again.
Module load_module(const std::string& path);

// "strategy" or "backend"; empty when unknown.
const char* plugin_kind_name(int32_t kind);

// Checks the exported table; throws GSEL_ERR_PLUGIN. Fills kind, name and version on the way.
//   symbol_bytes  the size the file gives for the symbol
void check_plugin(const gsel_plugin_v1& plugin, uint64_t symbol_bytes, Module& out);

}  // namespace gsel
