// select/resolve.cc: see resolve.h.
#include "select/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "select/choose.h"
#include "select/compat/compat.h"
#include "select/request/hosts.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

bool filters_hosts(const Request& request) {
  return request.include || request.exclude || request.hostfile;
}

std::vector<int32_t> all_hosts(const Inventory& inventory) {
  std::vector<int32_t> hosts(inventory.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  return hosts;
}

// Hosts in the order in which the units name them first.
std::vector<int32_t> hosts_of(const Inventory& inventory, const std::vector<Unit>& units) {
  std::vector<int32_t> out;
  std::vector<bool> seen(inventory.hosts.size());
  for (const Unit& unit : units) {
    const int32_t host = inventory.devices[static_cast<size_t>(unit.device)].host;
    if (!seen[static_cast<size_t>(host)]) out.push_back(host);
    seen[static_cast<size_t>(host)] = true;
  }
  return out;
}

Selection finish(std::shared_ptr<const Inventory> inventory, const Candidates& candidates, Trace trace) {
  Selection out;
  out.inventory = std::move(inventory);
  out.units = candidates.kept();
  out.candidates = candidates.verdicts();
  out.trace = std::move(trace);
  return out;
}

// ---- strict ----

Selection resolve_strictly(std::shared_ptr<const Inventory> inventory, const Environment& environment,
                           const Request& request) {
  const Question question = read_question(request);
  const auto wanted = [&](const Rules& row) { return question.concerns(row); };
  Candidates candidates(*inventory);
  Trace trace;
  const std::vector<Unit> all = accelerators(*inventory, wanted);
  std::vector<int32_t> hosts = all_hosts(*inventory);
  keep_visible(candidates, environment, wanted, trace);
  if (filters_hosts(request)) {
    std::vector<Unit> visible, cpus;
    for (const Unit& unit : candidates.kept()) (candidates.device(unit).is_cpu() ? cpus : visible).push_back(unit);
    visible = apply_host_filters(*inventory, visible, request, trace);
    hosts = hosts_of(*inventory, visible);
    for (const Unit& cpu : cpus)
      if (std::find(hosts.begin(), hosts.end(), candidates.device(cpu).host) != hosts.end()) visible.push_back(cpu);
    candidates.keep(visible, "left out by the filters of hosts");
  }
  choose(candidates, question, {environment, all, hosts}, trace);
  return finish(std::move(inventory), candidates, std::move(trace));
}

// ---- as another system reads it ----

const System& find_system(const std::string& name) {
  if (const System* system = system_named(name)) return *system;
  std::vector<std::string_view> known;
  for (const System& system : systems()) known.push_back(system.name);
  const std::string meant = nearest(name, known);
  refuse(GSEL_ERR_SYNTAX, {"compat", name}, {name, 1, false},
         fmt::format("is no system gsel knows{}; {} work", meant.empty() ? "" : fmt::format(", {} was meant?", meant),
                     fmt::join(known, ", ")));
}

std::shared_ptr<const Inventory> with_unlisted(std::shared_ptr<const Inventory> inventory, const Reading& reading) {
  if (reading.unlisted.empty()) return inventory;
  auto grown = std::make_shared<Inventory>(*inventory);
  std::vector<std::vector<Device>> own(reading.unlisted_hosts.size());
  for (const Device& device : reading.unlisted)
    own[static_cast<size_t>(device.host) - inventory->hosts.size()].push_back(device);
  for (size_t h = 0; h < own.size(); ++h) grown->add({reading.unlisted_hosts[h], 0, 0, {}}, std::move(own[h]));
  return grown;
}

std::string list_text(const Inventory& inventory, const std::vector<Unit>& units) {
  constexpr size_t kMostNamed = 16;
  if (units.empty()) return "no device";
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(units.size(), kMostNamed); ++i) texts.push_back(unit_text(inventory, units[i]));
  if (units.size() > kMostNamed) texts.push_back(fmt::format("{} more", units.size() - kMostNamed));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// The accelerator that a system selects, by its name in strict reading. Some units may not be in the inventory.
std::optional<std::string> accelerator_of(const System& system, const Inventory& inventory, const Request& request,
                                          const std::vector<Unit>& units) {
  if (rules_named(system.name)) return system.name;
  if (request.accelerator && rules_named(*request.accelerator)) return request.accelerator;
  const auto listed = std::find_if(units.begin(), units.end(), [&](const Unit& unit) {
    return static_cast<size_t>(unit.device) < inventory.devices.size();
  });
  if (listed == units.end()) return {};
  const Rules* row = rules_for(inventory.devices[static_cast<size_t>(listed->device)].vendor);
  return row ? std::optional<std::string>(row->accelerator) : std::nullopt;
}

// Warns where strict reading of the same variables and request gives another result.
void warn_as_strict(const std::shared_ptr<const Inventory>& inventory, const Environment& environment, Request request,
                    const System& system, const std::vector<Unit>& units, Trace& trace) {
  request.compat.reset();
  request.accelerator = accelerator_of(system, *inventory, request, units);
  // Without a request, a system that only hides devices is compared by the devices it hides.
  if (!request.devices && !filters_hosts(request)) request.devices = "all | none";
  request.per_rank = true;
  try {
    const Selection strict = resolve_strictly(inventory, environment, request);
    for (const std::string& warning : strict.trace.warnings)
      if (warning.find("not taken: ") != 0) trace.warn("strict: " + warning);
    if (strict.units != units && !system.reads_devices)
      trace.warn(fmt::format("strict reading selects {}, {} selects {}", list_text(*inventory, strict.units),
                             system.name, list_text(*inventory, units)));
  } catch (const Error& error) {
    const std::string_view name = status_name(error.code());
    trace.warn(fmt::format("strict: {}: {}", name.substr(std::string_view("GSEL_ERR_").size()), error.message()));
  }
}

Selection resolve_as(const System& system, std::shared_ptr<const Inventory> inventory, const Environment& environment,
                     const Request& request) {
  if (!system.reads_hosts) {
    if (filters_hosts(request))
      fail(GSEL_ERR_CONFLICT, "include, exclude and hostfile mean nothing to {}; leave them out", system.name);
    if (inventory->hosts.size() > 1)
      fail(GSEL_ERR_UNSUPPORTED, "{} looks at one host, and the inventory has {}; give an inventory of one host",
           system.name, inventory->hosts.size());
  }
  if (request.accelerator && rules_named(system.name) && rules_named(*request.accelerator) &&
      *request.accelerator != system.name)
    refuse(GSEL_ERR_CONFLICT, {"accelerator", *request.accelerator}, {*request.accelerator, 1, false},
           fmt::format("does not go with compat={}; leave one of them out", system.name));
  Trace trace;
  Reading reading = system.read({*inventory, environment, request, 0}, trace);
  const std::shared_ptr<const Inventory> machine = inventory;
  inventory = with_unlisted(std::move(inventory), reading);
  Candidates candidates(*inventory);
  candidates.keep(reading.units, [&](const Unit& unit) {
    return candidates.device(unit).is_cpu() || reading.hidden_by.empty()
               ? fmt::format("not selected by {}", system.name)
               : reading.hidden_by;
  });
  for (size_t i = 0; i < reading.units.size(); ++i)
    candidates.note(reading.units[i], fmt::format("position {} of what {} sees{}", i, system.name,
                                                  reading.names.empty() ? "" : ": " + reading.names[i]));
  if (!system.reads_devices && (request.devices || request.order)) {
    Request over = request;
    if (over.accelerator && !rules_named(*over.accelerator)) over.accelerator.reset();
    const Question question = read_question(over);
    const std::vector<Unit> all = reading.units;
    choose(candidates, question, {environment, all, all_hosts(*inventory)}, trace);
  }
  if (system.has_strict) warn_as_strict(machine, environment, request, system, candidates.kept(), trace);
  Selection out = finish(std::move(inventory), candidates, std::move(trace));
  out.system = system.name;
  out.processes = reading.processes;
  out.sets_environment = reading.sets_environment;
  out.environment = std::move(reading.environment);
  out.emit = reading.emit;
  out.environment_of_host = std::move(reading.environment_of_host);
  return out;
}

}  // namespace

Selection resolve(std::shared_ptr<const Inventory> inventory, const Environment& environment, const Request& request) {
  Selection out = request.compat ? resolve_as(find_system(*request.compat), std::move(inventory), environment, request)
                                 : resolve_strictly(std::move(inventory), environment, request);
  warn_of_misspelt(environment, out.trace);
  return out;
}

}  // namespace gsel
