// plugin/check.cc: checks the exported tables of a plugin field by field and copies them. Sizes are checked first, so
// that nothing is read that the plugin did not write. A plugin can still have wrong pointers; only the permission
// checks protect against these.
#include <gsel/device.h>
#include <gsel/plugin.h>
#include <gsel/transport.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <span>

#include "base/options.h"
#include "base/text.h"
#include "base/types.h"
#include "base/version.h"
#include "plugin/loader.h"

namespace gsel {
namespace {

constexpr size_t kLongestText = 256;
constexpr int32_t kMostOptions = 256;
constexpr int32_t kFormerTransport = 4;  // a kind of an earlier version

// Sizes in plugin ABI 1.0, up to the last field that each table had then; they never change.
#define GSEL_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(type::field))
constexpr size_t kFirstPlugin = GSEL_SIZE_UP_TO(gsel_plugin_v1, probe);
constexpr size_t kFirstStrategy = GSEL_SIZE_UP_TO(gsel_strategy_v1, compile);
constexpr size_t kFirstOption = GSEL_SIZE_UP_TO(gsel_option_v1, default_text);
constexpr size_t kFirstDevice = GSEL_SIZE_UP_TO(gsel_device_v1, optimizer_step);
constexpr size_t kFirstTransport = GSEL_SIZE_UP_TO(gsel_transport_v2, link_native);
#undef GSEL_SIZE_UP_TO

std::string abi_text() {
  return fmt::format("{}.{}", GSEL_PLUGIN_ABI_MAJOR, GSEL_PLUGIN_ABI_MINOR);
}

std::string accepted_abi() {
  return GSEL_PLUGIN_ABI_MINOR == 0 ? abi_text() : fmt::format("{}.0 to {}", GSEL_PLUGIN_ABI_MAJOR, abi_text());
}

std::string major_line() {
  return fmt::format("rebuild against gsel {}.x", GSEL_VERSION_MAJOR);
}

void check_abi(const gsel_plugin_v1& plugin) {
  if (plugin.abi_major == GSEL_PLUGIN_ABI_MAJOR && plugin.abi_minor <= GSEL_PLUGIN_ABI_MINOR) return;
  const bool newer_minor = plugin.abi_major == GSEL_PLUGIN_ABI_MAJOR;
  fail(GSEL_ERR_PLUGIN, "built for plugin ABI {}.{}, this libgsel {} accepts {}; {}{}", plugin.abi_major,
       plugin.abi_minor, kVersionText, accepted_abi(), newer_minor ? "update libgsel or " : "", major_line());
}

void check_size(const char* what, uint64_t has, uint64_t needs) {
  if (has < needs)
    fail(GSEL_ERR_PLUGIN, "its {} has {} bytes, plugin ABI {}.0 has {} bytes; {}", what, has, GSEL_PLUGIN_ABI_MAJOR,
         needs, major_line());
}

// Copies the part of a table that the plugin has and this version knows.
template <class T>
T copied(const T& table) {
  T copy{};
  std::memcpy(&copy, &table, std::min<size_t>(table.struct_size, sizeof copy));
  copy.struct_size = sizeof copy;
  return copy;
}

bool is_name(const char* text) {
  if (!text || strnlen(text, kLongestText) >= kLongestText) return false;
  const std::string_view name = text;
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

std::string shown(const char* text) {
  return text ? in_quotes({text, strnlen(text, kLongestText)}) : "NULL";
}

bool fits(const gsel_option_v1& option) {
  const char* text = option.default_text;
  const char* end = text + std::strlen(text);
  double value = 0;
  int64_t integer = 0;
  switch (option.type) {
    case GSEL_OPTION_TEXT:
      return true;
    case GSEL_OPTION_BOOLEAN:
      return !std::strcmp(text, "true") || !std::strcmp(text, "false");
    case GSEL_OPTION_INTEGER:
      if (std::from_chars(text, end, integer).ptr != end || text == end) return false;
      value = static_cast<double>(integer);
      break;
    default:
      if (std::from_chars(text, end, value).ptr != end || text == end) return false;
  }
  return value >= option.minimum && value <= option.maximum;
}

void check_option(const gsel_option_v1& option, std::set<std::string>& names) {
  if (!is_name(option.name) || !std::strcmp(option.name, "plugin"))
    fail(GSEL_ERR_PLUGIN, "an option is named {}; expected lower case letters, digits and '_', but not \"plugin\"",
         shown(option.name));
  if (!names.insert(option.name).second) fail(GSEL_ERR_PLUGIN, "two options are named \"{}\"", option.name);
  if (option.type < GSEL_OPTION_INTEGER || option.type > GSEL_OPTION_TEXT)
    fail(GSEL_ERR_PLUGIN, "option \"{}\" has type {}; expected a GSEL_OPTION_* of gsel/plugin.h", option.name,
         option.type);
  if (!option.help || !option.default_text)
    fail(GSEL_ERR_PLUGIN, "option \"{}\" has no {}", option.name, option.help ? "default" : "help");
  if (!fits(option))
    fail(GSEL_ERR_PLUGIN, "option \"{}\" has the default {}, which is not of its own type or bounds", option.name,
         shown(option.default_text));
}

// The distance of the list's entries is the size of the first.
std::vector<gsel_option_v1> copied_options(const gsel_strategy_v1& strategy) {
  std::vector<gsel_option_v1> options;
  const auto* at = reinterpret_cast<const char*>(strategy.options);
  for (int32_t i = 0; i < strategy.n_options; ++i, at += strategy.options->struct_size) {
    const auto& option = *reinterpret_cast<const gsel_option_v1*>(at);
    check_size("gsel_option_v1", option.struct_size, kFirstOption);
    if (option.struct_size != strategy.options->struct_size)
      fail(GSEL_ERR_PLUGIN, "option {} has a struct_size of {} and option 0 of {}; use one for all", i,
           option.struct_size, strategy.options->struct_size);
    options.push_back(copied(option));
  }
  return options;
}

void take_strategy(const gsel_strategy_v1& given, Tables& out) {
  check_size("strategy table", given.struct_size, kFirstStrategy);
  gsel_strategy_v1& strategy = out.strategy = copied(given);
  check_reserved(strategy, "gsel_strategy_v1", GSEL_ERR_PLUGIN);
  if (!strategy.compile) fail(GSEL_ERR_PLUGIN, "has no function compile, which a strategy needs");
  constexpr uint32_t known = (1u << kAxes) - 1;
  if (strategy.axes == 0 || (strategy.axes & ~known) != 0)
    fail(GSEL_ERR_PLUGIN, "serves axes {:#x}; expected one or more of the bits {:#x}", strategy.axes, known);
  if (strategy.n_options < 0 || strategy.n_options > kMostOptions || (strategy.n_options > 0 && !strategy.options))
    fail(GSEL_ERR_PLUGIN, "has {} options at {}; expected 0 to {} options", strategy.n_options,
         strategy.options ? "an address" : "NULL", kMostOptions);
  out.options = copied_options(strategy);
  strategy.options = out.options.data();
  std::set<std::string> names;
  for (const gsel_option_v1& option : out.options) check_option(option, names);
}

struct Function {
  const char* name;
  size_t offset;
};
#define GSEL_FUNCTION(name) \
  { #name, offsetof(GSEL_TABLE, name) }
#define GSEL_TABLE gsel_device_v1
constexpr Function kDeviceFunctions[] = {
    GSEL_FUNCTION(open),          GSEL_FUNCTION(close),
    GSEL_FUNCTION(describe),      GSEL_FUNCTION(alloc),
    GSEL_FUNCTION(free),          GSEL_FUNCTION(memory_of),
    GSEL_FUNCTION(copy),          GSEL_FUNCTION(copy_rows),
    GSEL_FUNCTION(zero),          GSEL_FUNCTION(stream_create),
    GSEL_FUNCTION(stream_import), GSEL_FUNCTION(stream_native),
    GSEL_FUNCTION(stream_free),   GSEL_FUNCTION(stream_wait),
    GSEL_FUNCTION(event_create),  GSEL_FUNCTION(event_import),
    GSEL_FUNCTION(event_native),  GSEL_FUNCTION(event_free),
    GSEL_FUNCTION(event_record),  GSEL_FUNCTION(event_wait),
    GSEL_FUNCTION(event_done),    GSEL_FUNCTION(stream_wait_event),
    GSEL_FUNCTION(event_seconds), GSEL_FUNCTION(cast),
    GSEL_FUNCTION(scale),         GSEL_FUNCTION(add),
    GSEL_FUNCTION(sum_squares),   GSEL_FUNCTION(optimizer_step),
};
#undef GSEL_TABLE
#define GSEL_TABLE gsel_transport_v2
constexpr Function kTransportFunctions[] = {
    GSEL_FUNCTION(open),       GSEL_FUNCTION(close),      GSEL_FUNCTION(link_join),
    GSEL_FUNCTION(link_leave), GSEL_FUNCTION(link_abort), GSEL_FUNCTION(link_error),
    GSEL_FUNCTION(describe),   GSEL_FUNCTION(supports),   GSEL_FUNCTION(enqueue),
};
#undef GSEL_TABLE
#undef GSEL_FUNCTION

// A table of functions; `first` is its size in plugin ABI 1.0, `needed` lists functions that must not be NULL.
template <class T>
void take_functions(const T& given, T& out, const char* kind, const char* type, size_t first,
                    std::span<const Function> needed) {
  check_size(fmt::format("{} table", kind).c_str(), given.struct_size, first);
  out = copied(given);
  check_reserved(out, type, GSEL_ERR_PLUGIN);
  for (const Function& function : needed) {
    void (*pointer)() = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&out) + function.offset, sizeof pointer);
    if (!pointer) fail(GSEL_ERR_PLUGIN, "has no function {}, which a {} needs", function.name, kind);
  }
}

}  // namespace

const char* plugin_kind_name(int32_t kind) {
  switch (kind) {
    case GSEL_PLUGIN_STRATEGY:
      return "strategy";
    case GSEL_PLUGIN_DEVICE:
      return "device";
    case GSEL_PLUGIN_TRANSPORT:
      return "transport";
    default:
      return "";
  }
}

void take_tables(const gsel_plugin_v1& exported, uint64_t symbol_bytes, Module& out) {
  check_size("gsel_plugin_v1 in the file", symbol_bytes, offsetof(gsel_plugin_v1, kind));
  check_abi(exported);
  check_size("gsel_plugin_v1 in the file", symbol_bytes, kFirstPlugin);
  check_size("gsel_plugin_v1", exported.struct_size, kFirstPlugin);
  if (exported.struct_size > symbol_bytes)
    fail(GSEL_ERR_PLUGIN, "its gsel_plugin_v1 states {} bytes and has {} in the file; set struct_size to its sizeof",
         exported.struct_size, symbol_bytes);
  const auto tables = std::make_shared<Tables>();
  gsel_plugin_v1& plugin = tables->plugin = copied(exported);
  check_reserved(plugin, "gsel_plugin_v1", GSEL_ERR_PLUGIN);
  out.kind = plugin_kind_name(plugin.kind);
  if (plugin.kind == kFormerTransport)
    fail(GSEL_ERR_PLUGIN,
         "is a transport with a gsel_transport_v1; build it with the gsel_transport_v2 of this version");
  if (out.kind.empty())
    fail(GSEL_ERR_PLUGIN, "is of kind {}; expected {} (strategy), {} (device) or {} (transport)", plugin.kind,
         GSEL_PLUGIN_STRATEGY, GSEL_PLUGIN_DEVICE, GSEL_PLUGIN_TRANSPORT);
  if (!is_name(plugin.name))
    fail(GSEL_ERR_PLUGIN, "is named {}; expected lower case letters, digits and '_'", shown(plugin.name));
  out.name = plugin.name;
  out.version = plugin.version ? plugin.version : "";
  if (!plugin.table)
    fail(GSEL_ERR_PLUGIN, "has no table; give it a gsel_{}_v{}", out.kind,
         plugin.kind == GSEL_PLUGIN_TRANSPORT ? 2 : 1);
  if (plugin.kind == GSEL_PLUGIN_STRATEGY) {
    take_strategy(*static_cast<const gsel_strategy_v1*>(plugin.table), *tables);
    plugin.table = &tables->strategy;
  } else if (plugin.kind == GSEL_PLUGIN_DEVICE) {
    take_functions(*static_cast<const gsel_device_v1*>(plugin.table), tables->device, "device", "gsel_device_v1",
                   kFirstDevice, kDeviceFunctions);
    plugin.table = &tables->device;
  } else {
    take_functions(*static_cast<const gsel_transport_v2*>(plugin.table), tables->transport, "transport",
                   "gsel_transport_v2", kFirstTransport, kTransportFunctions);
    plugin.table = &tables->transport;
  }
  out.tables = tables;
}

}  // namespace gsel
