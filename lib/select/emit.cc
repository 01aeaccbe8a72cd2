// select/emit.cc: a selection for others: variables for child processes, JSON for programs, a table for people. The
// caller's own environment is never touched.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "select/resolve.h"
#include "select/table.h"

namespace gsel {

EnvLines selection_env(const Selection& selection, int32_t local_rank) {
  const auto count = static_cast<int32_t>(selection.order.size());
  std::vector<const Device*> seen;
  for (int32_t i = 0; i < count; ++i)
    if (local_rank < 0 || count == 1 || i == local_rank) seen.push_back(&selection.device(i));
  if (local_rank < -1) fail(GSEL_ERR_ARG, "local_rank is {}; -1 or a rank from 0 is needed", local_rank);
  if (seen.empty())
    fail(GSEL_ERR_RANK_OVERFLOW, "local rank {} has no device: {} are selected, for local ranks 0 to {}", local_rank,
         count, count - 1);
  EnvLines lines;
  for (const Rules& row : rules()) {
    std::vector<const Device*> own;
    for (const Device* device : seen)
      if (device->vendor == row.vendor) own.push_back(device);
    const EnvLines more = row.emit(own);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

std::string selection_json(const Selection& selection) {
  using Json = nlohmann::ordered_json;
  Json root{{"status", "ok"}, {"devices", Json::array()}, {"env", Json::object()}};
  for (size_t i = 0; i < selection.order.size(); ++i) {
    const Device& device = selection.device(i);
    root["devices"].push_back({{"index", selection.order[i]},
                               {"host", device.host},
                               {"uuid", device.uuid},
                               {"pci", device.pci},
                               {"name", device.name},
                               {"vendor", device.vendor},
                               {"memory_bytes", device.memory_bytes}});
  }
  for (const auto& [name, value] : selection_env(selection, -1)) root["env"][name] = value;
  root["warnings"] = selection.warnings;
  root["trace"] = Json::array();
  for (size_t i = 0; i < selection.verdicts.size(); ++i)
    root["trace"].push_back(
        {{"index", i}, {"position", selection.verdicts[i].position}, {"reason", selection.verdicts[i].reason}});
  return root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string selection_text(const Selection& selection) {
  Table table({"position", "index", "vendor", "name", "memory", "pci", "uuid", "reason"});
  for (size_t i = 0; i < selection.verdicts.size(); ++i) {
    const Device& device = selection.inventory.devices[i];
    const Verdict& verdict = selection.verdicts[i];
    table.add({verdict.position < 0 ? "-" : std::to_string(verdict.position), std::to_string(i), device.vendor,
               device.name, bytes_text(device.memory_bytes), device.pci.empty() ? "-" : device.pci,
               device.uuid.empty() ? "-" : device.uuid, verdict.reason});
  }
  std::string out = table.text();
  for (const auto& [name, value] : selection_env(selection, -1)) out += fmt::format("env: {}={}\n", name, value);
  for (const std::string& warning : selection.warnings) out += fmt::format("warning: {}\n", warning);
  return out;
}

}  // namespace gsel
