// plugin/registry.cc: see registry.h. Accepted plugins are kept for the whole process, as by the dynamic loader.
// Refused ones are checked again each time, so that a corrected file is found without a restart. A file with another
// name than the plugin is opened only if the file with the plugin's name is not usable, and is not kept.
#include "plugin/registry.h"

#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "plugin/loader.h"
#include "plugin/search.h"

namespace gsel {
namespace {

struct Registered {
  const gsel_plugin_v1* given;
  Module module;
  bool probed = false;  // successfully
};

struct Accepted {
  std::mutex mutex;
  std::vector<Registered> registered;
  std::map<std::string, Module> modules;  // by resolved path
};

Accepted& accepted() {
  static Accepted* instance = new Accepted;  // never destroyed: lives as long as the modules
  return *instance;
}

Candidate refused(std::string path, std::string refusal) {
  Candidate candidate;
  candidate.path = std::move(path);
  candidate.refusal = std::move(refusal);
  return candidate;
}

// Checks one file; `owner` as in PluginFolder. The lock is held.
Candidate examine(const std::string& path, uid_t owner, const Wanted& wanted, std::map<std::string, Module>& modules) {
  if (const std::string reason = distrust_of_file(path, owner); !reason.empty())
    return refused(path, fmt::format("plugin {}: {}", path, reason));
  auto known = modules.find(path);
  Module module = known != modules.end() ? known->second : load_module(path, wanted);
  if (module.tables && known == modules.end()) {
    modules[path] = module;
    log(GSEL_LOG_DEBUG, "plugin", "loaded {} \"{}\" {} from {}", module.kind, module.name, module.version, path);
  }
  return {path,           module.kind,    module.name,
          module.version, module.refusal, module.tables && wanted.is(module) ? &module.tables->plugin : nullptr};
}

// Checks a plugin of the program. The lock is held.
Candidate examine(Registered& registered, const Wanted& wanted) {
  const Module& module = registered.module;
  Candidate candidate{{}, module.kind, module.name, module.version, {}, nullptr};
  if (!wanted.is(module)) return candidate;
  try {
    if (!registered.probed) probe(module.tables->plugin);
    registered.probed = true;
    candidate.plugin = &module.tables->plugin;
  } catch (const Error& e) {
    candidate.refusal = fmt::format("plugin {} of the program: {}", in_quotes(module.name), e.message());
  }
  return candidate;
}

bool is_named(const std::string& path, std::string_view name) {
  return path.ends_with(fmt::format("/{}.so", name));
}

// Calls `visit` with candidates and their files, in search order, until it returns true: registered plugins first, then
// folder by folder, in each folder the file with the requested name, then the others by name.
using Visit = std::function<bool(const std::string& file, Candidate candidate)>;
void each_candidate(const Wanted& wanted, const Visit& visit) {
  Accepted& state = accepted();
  std::lock_guard lock(state.mutex);
  for (Registered& registered : state.registered)
    if (visit({}, examine(registered, wanted))) return;
  std::set<std::string> seen;
  for (const PluginFolder& folder : plugin_folders()) {
    const auto refuse_folder = [&](const std::string& reason) {
      return visit(folder.path, refused(folder.path, fmt::format("plugin folder {}: {}", folder.path, reason)));
    };
    std::vector<std::string> files;
    try {
      if (folder.refusal.empty()) files = modules_in(folder.path);
      if (!folder.refusal.empty() && refuse_folder(folder.refusal)) return;
    } catch (const Error& e) {
      if (refuse_folder(e.message())) return;
    }
    if (wanted.name)
      std::stable_partition(files.begin(), files.end(), [&](const auto& file) { return is_named(file, *wanted.name); });
    for (const std::string& file : files) {
      Candidate candidate;
      try {
        const std::string path = resolved(file);
        if (!seen.insert(path).second) continue;
        candidate = examine(path, folder.owner, wanted, state.modules);
      } catch (const Error& e) {
        candidate = refused(file, fmt::format("plugin {}: {}", file, e.message()));
      }
      if (visit(file, std::move(candidate))) return;
    }
  }
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace

void register_plugin(const gsel_plugin_v1& plugin) {
  Module module;
  try {
    take_tables(plugin, plugin.struct_size, module);
  } catch (const Error& e) {
    fail(GSEL_ERR_PLUGIN, "plugin {} of the program: {}",
         module.name.empty() ? "without a name" : in_quotes(module.name), e.message());
  }
  Accepted& state = accepted();
  std::lock_guard lock(state.mutex);
  for (const Registered& other : state.registered) {
    if (other.given == &plugin) return;
    if (other.module.kind == module.kind && other.module.name == module.name)
      fail(GSEL_ERR_STATE, "another {} named {} is registered, version {}; register one of them", module.kind,
           in_quotes(module.name), in_quotes(other.module.version));
  }
  state.registered.push_back({&plugin, module});
  log(GSEL_LOG_DEBUG, "plugin", "registered {} \"{}\" {}", module.kind, module.name, module.version);
}

std::vector<Candidate> find_plugins(int32_t kind) {
  std::vector<Candidate> all;
  std::vector<std::string> files;
  std::map<std::pair<std::string, std::string>, size_t> first;  // kind and name to the candidate for load_plugin
  each_candidate({plugin_kind_name(kind), {}}, [&](const std::string& file, Candidate candidate) {
    all.push_back(std::move(candidate));
    files.push_back(file);
    const Candidate& added = all.back();
    if (!added.plugin) return false;
    size_t& taken = first.try_emplace({added.kind, added.name}, all.size() - 1).first->second;
    if (folder_of(files[taken]) == folder_of(file) && is_named(file, added.name)) taken = all.size() - 1;
    return false;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    Candidate& candidate = all[i];
    if (!candidate.plugin) continue;
    const size_t taken = first.at({candidate.kind, candidate.name});
    if (taken == i) continue;
    candidate.plugin = nullptr;
    candidate.refusal =
        fmt::format("plugin {}: shadowed by {}, which comes first and is a {} named \"{}\" too", candidate.path,
                    all[taken].path.empty() ? "one of the program" : all[taken].path, candidate.kind, candidate.name);
  }
  return all;
}

std::vector<Candidate> list_plugins() {
  std::vector<Candidate> all = find_plugins();
  for (Candidate& candidate : all) {
    if (!candidate.plugin || candidate.plugin->kind != GSEL_PLUGIN_TRANSPORT) continue;
    const auto& table = *static_cast<const gsel_transport_v2*>(candidate.plugin->table);
    const char* note = table.library_note ? table.library_note() : nullptr;
    if (note) candidate.note = note;
  }
  return all;
}

const gsel_plugin_v1& load_plugin(int32_t kind, std::string_view name) {
  const gsel_plugin_v1* found = nullptr;
  std::vector<std::string> refusals, others, folders;
  const Wanted wanted{plugin_kind_name(kind), name};
  each_candidate(wanted, [&](const std::string& file, const Candidate& candidate) {
    const bool of_kind = candidate.kind == wanted.kind;
    const bool of_name = candidate.name.empty() ? is_named(file, name) : candidate.name == name;
    if (candidate.plugin && of_kind && of_name) {
      found = candidate.plugin;
    } else if (candidate.refusal.starts_with("plugin folder ")) {
      folders.push_back(candidate.refusal);
    } else if (candidate.refusal.empty() && of_kind) {
      others.push_back(in_quotes(candidate.name));
    } else if (of_name && (of_kind || candidate.kind.empty())) {
      refusals.push_back(candidate.refusal);
    }
    return found != nullptr;
  });
  if (found) return *found;
  if (!refusals.empty())
    fail(GSEL_ERR_PLUGIN, "{} plugin {} was refused: {}", plugin_kind_name(kind), in_quotes(name),
         joined(refusals, "; and "));
  std::vector<std::string> searched;
  for (const PluginFolder& folder : plugin_folders())
    if (folder.refusal.empty()) searched.push_back(folder.path);
  std::string text = fmt::format("no {} plugin {} in {}; there are {}", plugin_kind_name(kind), in_quotes(name),
                                 searched.empty() ? "any folder" : joined(searched, ", "),
                                 others.empty() ? "none of that kind" : joined(others, ", "));
  for (const std::string& refusal : folders) text += "; " + refusal;
  throw Error(GSEL_ERR_NOT_FOUND, text);
}

}  // namespace gsel
