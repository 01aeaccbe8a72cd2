// select/candidates.cc: see candidates.h.
#include "select/candidates.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/text.h"
#include "select/rules/rules.h"
#include "select/words/tokens.h"

namespace gsel {

Candidates::Candidates(const Inventory& inventory) : inventory_(inventory) {
  const size_t count = inventory.devices.size();
  first_row_.reserve(count);
  rows_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    first_row_.push_back(rows_.size());
    const auto device = static_cast<int32_t>(i);
    const auto partitions = static_cast<int32_t>(inventory.devices[i].partitions.size());
    if (partitions == 0) rows_.push_back({{device, -1, -1}, true, {}});
    for (int32_t p = 0; p < partitions; ++p) rows_.push_back({{device, p, -1}, true, {}});
  }
  kept_.reserve(rows_.size());
  for (const Row& row : rows_) kept_.push_back(row.unit);
}

size_t Candidates::row_of(const Unit& unit) const {
  return first_row_[static_cast<size_t>(unit.device)] + static_cast<size_t>(unit.partition < 0 ? 0 : unit.partition);
}

void Candidates::keep(std::vector<Unit> units, const std::function<std::string(const Unit&)>& why_dropped) {
  std::vector<bool> wanted(rows_.size());
  for (const Unit& unit : units) wanted[row_of(unit)] = true;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].kept && !wanted[i]) rows_[i].reason = why_dropped(rows_[i].unit);
    rows_[i].kept = wanted[i];
  }
  kept_ = std::move(units);
}

void Candidates::drop(const std::function<std::string(const Unit&)>& unwanted) {
  std::vector<Unit> left;
  left.reserve(kept_.size());
  for (const Unit& unit : kept_) {
    std::string reason = unwanted(unit);
    if (reason.empty()) {
      left.push_back(unit);
      continue;
    }
    Row& row = rows_[row_of(unit)];
    row.kept = false;
    row.reason = std::move(reason);
  }
  kept_ = std::move(left);
}

void Candidates::note(const Unit& unit, const std::string& reason) {
  std::string& text = rows_[row_of(unit)].reason;
  text += text.empty() ? reason : "; " + reason;
}

std::vector<Verdict> Candidates::verdicts() const {
  std::vector<Verdict> out;
  out.reserve(rows_.size());
  for (const Row& row : rows_) out.push_back({row.unit, -1, row.reason});
  for (size_t i = kept_.size(); i-- > 0;) out[row_of(kept_[i])].position = static_cast<int32_t>(i);
  return out;
}

// ---- clauses that say which devices are acceptable ------------------------------------------------------------------

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
