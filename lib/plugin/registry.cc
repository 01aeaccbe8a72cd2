// plugin/registry.cc: see registry.h. Accepted plugins are remembered for the whole process, as the dynamic loader
// does. Refused ones are examined anew each time, so that a corrected file is found without a restart.
#include "plugin/registry.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "plugin/loader.h"
#include "plugin/search.h"
#include "plugin/trust.h"

namespace gsel {
namespace {

struct Accepted {
  std::mutex mutex;
  std::map<std::string, Module> modules;  // by resolved path
};

Accepted& accepted() {
  static Accepted* instance = new Accepted;  // never destroyed: as long-lived as the modules
  return *instance;
}

Candidate refused(std::string path, std::string refusal) {
  Candidate candidate;
  candidate.path = std::move(path);
  candidate.refusal = std::move(refusal);
  return candidate;
}

// One file; `owner` as in PluginFolder. The lock is held.
Candidate examine(const std::string& path, uid_t owner, std::map<std::string, Module>& modules) {
  if (const std::string reason = distrust_of_file(path, owner); !reason.empty())
    return refused(path, fmt::format("plugin {}: {}", path, reason));
  auto known = modules.find(path);
  Module module = known != modules.end() ? known->second : load_module(path);
  if (module.tables && known == modules.end()) {
    modules[path] = module;
    log(GSEL_LOG_DEBUG, "plugin", "loaded {} \"{}\" {} from {}", module.kind, module.name, module.version, path);
  }
  return {path,           module.kind,    module.name,
          module.version, module.refusal, module.tables ? &module.tables->plugin : nullptr};
}

// Hands out candidates in search order until `visit` answers true.
void each_candidate(const std::function<bool(Candidate)>& visit) {
  Accepted& state = accepted();
  std::lock_guard lock(state.mutex);
  std::set<std::string> seen;
  for (const PluginFolder& folder : plugin_folders()) {
    const auto refuse_folder = [&](const std::string& reason) {
      return visit(refused(folder.path, fmt::format("plugin folder {}: {}", folder.path, reason)));
    };
    std::vector<std::string> files;
    try {
      if (folder.refusal.empty()) files = modules_in(folder.path);
      if (!folder.refusal.empty() && refuse_folder(folder.refusal)) return;
    } catch (const Error& e) {
      if (refuse_folder(e.message())) return;
    }
    for (const std::string& file : files) {
      Candidate candidate;
      try {
        const std::string path = resolved(file);
        if (!seen.insert(path).second) continue;
        candidate = examine(path, folder.owner, state.modules);
      } catch (const Error& e) {
        candidate = refused(file, fmt::format("plugin {}: {}", file, e.message()));
      }
      if (visit(std::move(candidate))) return;
    }
  }
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  return fmt::format("{}", fmt::join(parts, between));
}

}  // namespace

std::vector<Candidate> find_plugins() {
  std::vector<Candidate> all;
  std::map<std::pair<std::string, std::string>, std::string> first;  // kind and name to path
  each_candidate([&](Candidate candidate) {
    if (candidate.plugin) {
      const auto [winner, inserted] = first.try_emplace({candidate.kind, candidate.name}, candidate.path);
      if (!inserted) {
        candidate.plugin = nullptr;
        candidate.refusal = fmt::format("plugin {}: shadowed by {}, which comes first and is a {} named \"{}\" too",
                                        candidate.path, winner->second, candidate.kind, candidate.name);
      }
    }
    all.push_back(std::move(candidate));
    return false;
  });
  return all;
}

const gsel_plugin_v1& load_plugin(int32_t kind, std::string_view name) {
  const gsel_plugin_v1* found = nullptr;
  std::vector<std::string> refusals, others, folders;
  each_candidate([&](Candidate candidate) {
    const bool of_kind = candidate.kind == plugin_kind_name(kind);
    const std::filesystem::path path(candidate.path);
    const bool of_name =
        candidate.name.empty() ? path.filename() == fmt::format("{}.so", name) : candidate.name == name;
    if (candidate.plugin && of_kind && of_name) {
      found = candidate.plugin;
    } else if (candidate.plugin && of_kind) {
      others.push_back(in_quotes(candidate.name));
    } else if (!candidate.plugin && of_name && (of_kind || candidate.kind.empty())) {
      refusals.push_back(candidate.refusal);
    } else if (candidate.refusal.starts_with("plugin folder ")) {
      folders.push_back(candidate.refusal);
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
