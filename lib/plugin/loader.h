// plugin/loader.h: opens one plugin file, checks the exported tables field by field, and copies them before it calls
// any function of the plugin. Does not know where the file came from or whether it is trusted.
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

// The tables of a module in the current version's form: tables of an earlier version are shorter, and the fields that
// they lack are zero.
struct Tables {
  gsel_plugin_v1 plugin{};  // its table is one of those below
  gsel_strategy_v1 strategy{};
  std::vector<gsel_option_v1> options;  // of the strategy
  gsel_device_v1 device{};
  gsel_transport_v2 transport{};
};

struct Module {
  std::string kind, name, version;       // if they could be read
  std::string refusal;                   // empty if usable or not requested
  std::shared_ptr<const Tables> tables;  // set if usable
};

// The purpose of a search. Only plugins of this kind and name may load their dependencies at run time: a probe can
// start a driver, which then stays in the process until it ends.
struct Wanted {
  std::string_view kind;                 // as plugin_kind_name gives it; empty: any
  std::optional<std::string_view> name;  // none: any
  bool is(const Module& module) const {
    return (kind.empty() || kind == module.kind) && (!name || *name == module.name);
  }
};

// `path` is resolved and absolute. A module that is not requested, or that is refused before any of its functions ran,
// is unloaded.
Module load_module(const std::string& path, const Wanted& wanted);

// Runs the probe, if there is one; throws GSEL_ERR_PLUGIN when the plugin cannot run here.
void probe(const gsel_plugin_v1& plugin);

// "strategy", "device" or "transport"; empty when unknown.
const char* plugin_kind_name(int32_t kind);

// Checks the exported tables and copies them; throws GSEL_ERR_PLUGIN. Sets kind, name and version as soon as they are
// read.
//   symbol_bytes  the size the file gives for the symbol
void take_tables(const gsel_plugin_v1& exported, uint64_t symbol_bytes, Module& out);

}  // namespace gsel
