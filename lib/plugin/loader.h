// plugin/loader.h: opens one plugin file, checks what it exports field by field, and copies it, before any function of
// it is called. Does not know where the file came from and whether it may be trusted.
#pragma once

#include <gsel/device.h>
#include <gsel/plugin.h>
#include <gsel/transport.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

// What a module exports, in the form that this version has: tables of an earlier one are shorter, and what they lack is
// zero here.
struct Tables {
  gsel_plugin_v1 plugin{};  // its table is one of those below
  gsel_strategy_v1 strategy{};
  std::vector<gsel_option_v1> options;  // of the strategy
  gsel_device_v1 device{};
  gsel_transport_v2 transport{};
};

struct Module {
  std::string kind, name, version;       // as far as they could be read
  std::string refusal;                   // empty when usable, or not asked for
  std::shared_ptr<const Tables> tables;  // set when usable
};

// What a search is for. Only a plugin of that kind and name may load what it depends on at run time: a probe can start
// a driver, and the process then has that driver until it ends.
struct Asked {
  std::string_view kind;                 // as plugin_kind_name gives it; empty: any
  std::optional<std::string_view> name;  // none: any
  bool is(const Module& module) const {
    return (kind.empty() || kind == module.kind) && (!name || *name == module.name);
  }
};

// `path` is resolved and absolute. A module that is not asked for, or was refused before any of its functions ran, is
// unloaded again.
Module load_module(const std::string& path, const Asked& asked);

// Runs the probe, if there is one; throws GSEL_ERR_PLUGIN when the plugin cannot run here.
void probe(const gsel_plugin_v1& plugin);

// "strategy", "device" or "transport"; empty when unknown.
const char* plugin_kind_name(int32_t kind);

// Checks the exported tables and copies them; throws GSEL_ERR_PLUGIN. Fills kind, name and version on the way.
//   symbol_bytes  the size the file gives for the symbol
void take_tables(const gsel_plugin_v1& exported, uint64_t symbol_bytes, Module& out);

}  // namespace gsel
