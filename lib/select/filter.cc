// select/filter.cc: see filter.h.
#include "select/filter.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/text.h"
#include "select/rules/rules.h"
#include "select/words/table.h"

namespace gsel {
namespace {

using Kind = Clause::Kind;

bool any_glob(const Clause& clause, const std::string& text) {
  return std::any_of(clause.tokens.begin(), clause.tokens.end(),
                     [&](const Token& token) { return glob_matches(token.text, text); });
}

std::string capability_text(const Device& device) {
  return fmt::format("{}.{}", device.capability_major, device.capability_minor);
}

bool is_of_accelerator(const Device& device, const std::string& accelerator) {
  if (device.is_cpu() || accelerator == "cpu") return device.is_cpu() && accelerator == "cpu";
  const Rules* row = rules_named(accelerator);
  return row && device.vendor == row->vendor;
}

bool holds(const Device& device, const Unit& unit, const std::string& host, const Clause& clause) {
  switch (clause.kind) {
    case Kind::accelerator:
      return is_of_accelerator(device, clause.name);
    case Kind::name:
      return any_glob(clause, device.name);
    case Kind::host:
      return any_glob(clause, host);
    case Kind::arch:
      return any_glob(clause, capability_text(device)) ||
             (!device.architecture.empty() && any_glob(clause, device.architecture));
    case Kind::numa:
      return std::any_of(clause.tokens.begin(), clause.tokens.end(),
                         [&](const Token& token) { return number_of(token.text) == device.numa; });
    case Kind::least_arch:
      return static_cast<uint64_t>(device.capability_major) * 1000 + static_cast<uint64_t>(device.capability_minor) >=
             clause.number;
    case Kind::least_free:
      return free_of(device, unit) >= clause.number;
    case Kind::least_memory:
      return memory_of(device, unit) >= clause.number;
    case Kind::integrated:
      return device.integrated;
    case Kind::busy:
      return !busy_text(device, unit).empty();
    default:
      return true;
  }
}

// What the device is, where the filter expects something else.
std::string found_text(const Device& device, const Unit& unit, const std::string& host, const Clause& clause) {
  switch (clause.kind) {
    case Kind::accelerator:
      return device.is_cpu() ? "a CPU" : fmt::format("of vendor {}", device.vendor);
    case Kind::host:
      return fmt::format("on host {}", host);
    case Kind::arch:
    case Kind::least_arch:
      return device.architecture.empty() ? fmt::format("of compute capability {}", capability_text(device))
                                         : fmt::format("of architecture {}", device.architecture);
    case Kind::numa:
      return device.numa < 0 ? "of an unknown NUMA node" : fmt::format("on NUMA node {}", device.numa);
    case Kind::least_free:
      return fmt::format("with {} free", bytes_text(free_of(device, unit)));
    case Kind::least_memory:
      return fmt::format("with {} of memory", bytes_text(memory_of(device, unit)));
    case Kind::integrated:
      return device.integrated ? "integrated" : "not integrated";
    case Kind::busy: {
      const std::string busy = busy_text(device, unit);
      return busy.empty() ? "not in use" : busy;
    }
    default:
      return fmt::format("a {}", device.name);
  }
}

}  // namespace

bool glob_matches(const std::string& glob, const std::string& text) {
  return fnmatch(glob.c_str(), text.c_str(), FNM_CASEFOLD) == 0;
}

std::string busy_text(const Device& device, const Unit& unit) {
  const int32_t holder =
      unit.partition < 0 ? device.reserved_by : device.partitions[static_cast<size_t>(unit.partition)].reserved_by;
  if (holder > 0) return fmt::format("reserved by process {}", holder);
  if (holder < 0) return "reserved by another process";
  // Processes are counted per device; which instance they use is unknown.
  if (unit.partition >= 0 || device.process_count <= 0) return {};
  return fmt::format("used by {}", with_noun(device.process_count, "process"));
}

std::string misses(const Inventory& inventory, const Unit& unit, const Clause& clause) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  const std::string& host = inventory.host_of(device).name;
  if (holds(device, unit, host, clause) != clause.excluded) return {};
  return fmt::format("{}, which {} does not allow", found_text(device, unit, host, clause),
                     printable(clause.whole.text));
}

std::string unavailable(const Device& device, const Unit& unit, bool free_only, gsel_status* code) {
  *code = GSEL_ERR_PERMISSION;
  if (!device.accessible) return "not to be opened by this user";
  if (device.compute_mode == ComputeMode::prohibited) return "in compute mode prohibited, which allows no process";
  *code = GSEL_ERR_BUSY;
  if (device.compute_mode == ComputeMode::exclusive_process && device.process_count > 0)
    return "in compute mode exclusive_process and in use by a process";
  return free_only ? busy_text(device, unit) : std::string();
}

}  // namespace gsel
