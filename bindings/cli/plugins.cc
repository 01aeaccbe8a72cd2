// plugins.cc: `gsel plugins`: lists every candidate on the search path, with the reason if refused.
#include <nlohmann/json.hpp>

#include "client.h"
#include "colour.h"
#include "commands.h"

namespace gsel::cli {
namespace {

const CommandText kPluginsText{
    .name = "plugins",
    .summary = "List every plugin on the search path, and why any was refused",
    .description =
        "Plugins are strategies, devices and transports. They are looked for in the folders of GSEL_PLUGIN_PATH, then "
        "in the folder beside the library.",
    .examples = {{"GSEL_PLUGIN_PATH=$PWD gsel plugins", "Says whether a plugin in this folder is usable."}},
    .sections = {{"JSON",
                  "An object with the list plugins. Each entry has",
                  {{"path", "The file."},
                   {"kind, name, version", "What it says of itself; empty where it could not be read."},
                   {"usable", "true or false."},
                   {"refusal", "Why it is not usable; else empty."},
                   {"note", "What the library has that it wraps, such as NCCL; else empty."}}}},
    .related = {"gsel_plugin_list_create(3)", "docs/README.md"}};

std::vector<gsel_plugin_info> candidates(const gsel_plugin_list* list) {
  std::vector<gsel_plugin_info> out;
  for (int32_t i = 0; i < gsel_plugin_list_count(list); ++i) {
    gsel_plugin_info info = GSEL_PLUGIN_INFO_INIT;
    gsel_error* error = nullptr;
    check(gsel_plugin_list_get(list, i, &info, &error), &error);
    out.push_back(info);
  }
  return out;
}

std::string plugins_json(const std::vector<gsel_plugin_info>& list) {
  nlohmann::ordered_json out{{"plugins", nlohmann::ordered_json::array()}};
  for (const gsel_plugin_info& info : list)
    out["plugins"].push_back({{"path", text(info.path)},
                              {"kind", text(info.kind)},
                              {"name", text(info.name)},
                              {"version", text(info.version)},
                              {"usable", info.refusal.len == 0},
                              {"refusal", text(info.refusal)},
                              {"note", text(info.note)}});
  return json_text(out);
}

// A line per candidate, followed by the reason of a refusal or its note.
std::string plugins_text(const std::vector<gsel_plugin_info>& list) {
  if (list.empty()) return "no plugins on the search path\n";
  std::string out;
  for (const gsel_plugin_info& info : list) {
    const std::string name = text(info.name), kind = text(info.kind);
    out += (info.refusal.len ? coloured(Colour::bad, "refused") : coloured(Colour::good, "usable")) +
           (info.refusal.len ? "  " : "   ") + (kind.empty() ? "?" : kind) + " " + (name.empty() ? "?" : name);
    if (info.version.len) out += " " + text(info.version);
    out += "  " + text(info.path) + "\n";
    for (const gsel_str& more : {info.refusal, info.note})
      if (more.len) out += "         " + text(more) + "\n";
  }
  return out;
}

int list_plugins(bool json) {
  gsel_plugin_list* made = nullptr;
  gsel_error* error = nullptr;
  check(gsel_plugin_list_create(&made, &error), &error);
  const Handle<gsel_plugin_list> list(made);
  const auto all = candidates(made);
  print(json ? plugins_json(all) : plugins_text(all));
  return 0;
}

}  // namespace

Command plugins_command(CommandLine& line) {
  return {line.subcommand(kPluginsText), [&common = line.common()] { return list_plugins(common.json); }};
}

}  // namespace gsel::cli
