// select/emit.cc: see resolve.h: variables for child processes, JSON for programs, a table for humans.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "select/resolve.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

std::vector<Unit> units_on(const Selection& selection, int32_t host) {
  std::vector<Unit> out;
  for (size_t i = 0; i < selection.units.size(); ++i)
    if (selection.device(i).host == host) out.push_back(selection.units[i]);
  return out;
}

std::vector<Unit> units_of_rank(std::vector<Unit> units, int32_t local_rank) {
  const auto count = static_cast<int32_t>(units.size());
  if (local_rank < -1) fail(GSEL_ERR_ARG, "local_rank is {}; -1 or a rank from 0 is needed", local_rank);
  if (local_rank < 0 || count <= 1) return units;
  if (local_rank >= count)
    fail(GSEL_ERR_RANK_OVERFLOW, "local rank {} has no device: {} are selected, for local ranks 0 to {}", local_rank,
         count, count - 1);
  return {units[static_cast<size_t>(local_rank)]};
}

Json device_json(const Selection& selection, size_t position) {
  const Unit& unit = selection.units[position];
  const Device& device = selection.device(position);
  Json out{{"index", device.index},
           {"host", selection.inventory->host_of(device).name},
           {"uuid", device.uuid},
           {"pci", device.pci},
           {"name", device.name},
           {"vendor", device.vendor},
           {"memory_bytes", device.memory_bytes}};
  if (unit.partition >= 0) {
    const Partition& partition = device.partitions[static_cast<size_t>(unit.partition)];
    out.set("memory_bytes", partition.memory_bytes);
    out.set("partition", partition.uuid);
    out.set("gi", partition.gi);
    out.set("ci", partition.ci);
  }
  if (unit.tile >= 0) out.set("tile", unit.tile);
  return out;
}

Json lines_json(const EnvLines& lines) {
  Json out = Json::object();
  for (const auto& [name, value] : lines) out.set(name, value);
  return out;
}

Json steps_json(const Selection& selection) {
  Json out = Json::array();
  for (const Step& step : selection.trace.steps)
    out.push({{"layer", step.layer},
              {"input", step.input},
              {"token", step.token},
              {"column", step.column},
              {"became", step.became},
              {"rule", step.rule}});
  return out;
}

Json candidates_json(const Selection& selection) {
  Json out = Json::array();
  for (const Verdict& candidate : selection.candidates) {
    const Device& device = selection.inventory->devices[static_cast<size_t>(candidate.unit.device)];
    Json row{{"index", device.index},
             {"host", selection.inventory->host_of(device).name},
             {"position", candidate.position},
             {"reason", candidate.reason}};
    if (candidate.unit.partition >= 0) row.set("partition", uuid_of(*selection.inventory, candidate.unit));
    out.push(std::move(row));
  }
  return out;
}

std::string dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// The variables of each host with a selected unit, and their warnings.
struct HostEnvironment {
  int32_t host;
  Emission emission;
};

std::vector<HostEnvironment> environments(const Selection& selection) {
  std::vector<HostEnvironment> out;
  std::vector<int32_t> hosts = selected_hosts(selection);
  if (hosts.empty()) hosts.push_back(0);
  for (int32_t host : hosts) out.push_back({host, selection_env(selection, host, -1)});
  return out;
}

std::vector<std::string> all_warnings(const Selection& selection, const std::vector<HostEnvironment>& hosts) {
  std::vector<std::string> out = selection.trace.warnings;
  for (const HostEnvironment& host : hosts)
    for (const std::string& warning : host.emission.warnings)
      if (std::find(out.begin(), out.end(), warning) == out.end()) out.push_back(warning);
  return out;
}

}  // namespace

std::vector<int32_t> selected_hosts(const Selection& selection) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < selection.units.size(); ++i) {
    const int32_t host = selection.device(i).host;
    if (std::find(out.begin(), out.end(), host) == out.end()) out.push_back(host);
  }
  return out;
}

Emission selection_env(const Selection& selection, int32_t host, int32_t local_rank) {
  const std::vector<Unit> all = units_on(selection, host);
  const std::vector<Unit> of_rank = units_of_rank(all, local_rank);
  Emission out;
  if (selection.sets_environment) {
    out.lines = selection.environment;
    const auto own = selection.environment_of_host.find(host);
    if (own != selection.environment_of_host.end())
      out.lines.insert(out.lines.begin(), own->second.begin(), own->second.end());
    return out;
  }
  const Inventory& inventory = *selection.inventory;
  if (selection.emit) {
    out.lines = selection.emit(inventory, host, of_rank);
    return out;
  }
  const bool none = !has_accelerators(inventory, host);
  for (const Rules& row : rules()) {
    const Group group = group_of(inventory, host, row.vendor);
    // On a machine without accelerators, the child gets the variables that most programs read.
    if (group.devices.empty() && !(none && &row == &rules().front())) continue;
    std::vector<Unit> own;
    for (const Unit& unit : row.rank_picks ? all : of_rank)
      if (inventory.devices[static_cast<size_t>(unit.device)].vendor == row.vendor) own.push_back(unit);
    Emission more = row.emit(group, own);
    for (auto& line : more.lines) {
      const auto same = std::find_if(out.lines.begin(), out.lines.end(),
                                     [&](const auto& before) { return before.first == line.first; });
      if (same == out.lines.end()) out.lines.push_back(std::move(line));
    }
    out.warnings.insert(out.warnings.end(), more.warnings.begin(), more.warnings.end());
  }
  return out;
}

std::string selection_json(const Selection& selection) {
  const auto hosts = environments(selection);
  Json devices = Json::array();
  for (size_t i = 0; i < selection.units.size(); ++i) devices.push(device_json(selection, i));
  Json root{{"status", "ok"}, {"devices", std::move(devices)}};
  root.set("env", lines_json(hosts.front().emission.lines));
  if (hosts.size() > 1) {
    Json env_of_host = Json::object();
    for (const HostEnvironment& host : hosts)
      env_of_host.set(selection.inventory->hosts[static_cast<size_t>(host.host)].name, lines_json(host.emission.lines));
    root.set("env_of_host", std::move(env_of_host));
  }
  if (!selection.system.empty()) root.set("compat", selection.system);
  if (selection.processes >= 0) root.set("processes", selection.processes);
  root.set("warnings", all_warnings(selection, hosts));
  root.set("trace", steps_json(selection));
  root.set("candidates", candidates_json(selection));
  return root.on_lines(2);
}

std::string selection_text(const Selection& selection) {
  const Inventory& inventory = *selection.inventory;
  Table table({"position", "index", "vendor", "name", "memory", "pci", "uuid", "reason"});
  for (const Verdict& candidate : selection.candidates) {
    const Device& device = inventory.devices[static_cast<size_t>(candidate.unit.device)];
    std::string index = std::to_string(device.index);
    if (inventory.hosts.size() > 1) index = fmt::format("{}/{}", inventory.host_of(device).name, index);
    table.add({candidate.position < 0 ? "-" : std::to_string(candidate.position), index, device.vendor, device.name,
               bytes_text(device.memory_bytes), dash(device.pci), dash(uuid_of(inventory, candidate.unit)),
               candidate.reason});
  }
  std::string out = table.text();
  for (const Step& step : selection.trace.steps)
    out += fmt::format("{}: {} \"{}\" at column {} became {}: {}\n", step.layer, step.input, printable(step.token),
                       step.column, step.became, step.rule);
  const auto hosts = environments(selection);
  if (selection.processes >= 0) out += fmt::format("processes: {}\n", selection.processes);
  for (const HostEnvironment& host : hosts)
    for (const auto& [name, value] : host.emission.lines)
      out += hosts.size() > 1
                 ? fmt::format("env of {}: {}={}\n", inventory.hosts[static_cast<size_t>(host.host)].name, name, value)
                 : fmt::format("env: {}={}\n", name, value);
  for (const std::string& warning : all_warnings(selection, hosts)) out += fmt::format("warning: {}\n", warning);
  return out;
}

}  // namespace gsel
