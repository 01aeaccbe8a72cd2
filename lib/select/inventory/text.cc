// select/inventory/text.cc: an inventory as tables for humans: columns in which no device has a value are omitted, and
// links are a matrix like that of nvidia-smi topo.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "select/inventory/inventory.h"
#include "select/inventory/vulkan.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

std::string number_or_dash(int64_t number, int64_t unknown) {
  return number == unknown ? "-" : std::to_string(number);
}

std::string text_or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string holder_text(int32_t process) {
  return process > 0 ? fmt::format("reserved by process {}", process) : "reserved by another process";
}

// What restricts the use of a device.
std::string state_of(const Device& device) {
  std::vector<std::string> parts;
  if (!device.accessible) parts.push_back("not accessible");
  if (device.compute_mode != ComputeMode::standard) parts.push_back(compute_mode_name(device.compute_mode));
  if (device.divided) parts.push_back(fmt::format("divided in {}", device.partitions.size()));
  if (device.integrated) parts.push_back("integrated");
  if (device.reserved_by) parts.push_back(holder_text(device.reserved_by));
  return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string architecture_of(const Device& device) {
  if (!device.architecture.empty()) return device.architecture;
  if (!device.capability_major) return "-";
  return fmt::format("{}.{}", device.capability_major, device.capability_minor);
}

using Row = std::vector<std::string>;

constexpr size_t kState = 10;
const Row kHeading = {"index", "vendor",    "name",  "memory",  "free",   "arch", "units", "clock",
                      "tiles", "processes", "state", "ordinal", "module", "numa", "pci",   "uuid"};

Row device_row(const Device& d) {
  return {std::to_string(d.index),
          d.vendor,
          text_or_dash(d.name),
          bytes_text(d.memory_bytes),
          bytes_text(d.free_bytes),
          architecture_of(d),
          number_or_dash(d.compute_units, 0),
          d.clock_khz ? fmt::format("{} MHz", d.clock_khz / 1000) : "-",
          number_or_dash(d.tiles, 0),
          number_or_dash(d.process_count, -1),
          state_of(d),
          number_or_dash(d.ordinal, -1),
          number_or_dash(d.module, -1),
          number_or_dash(d.numa, -1),
          text_or_dash(d.pci),
          text_or_dash(d.uuid)};
}

Row partition_row(const Partition& partition) {
  Row row(kHeading.size(), "");
  row[2] = fmt::format("  instance gi {} ci {}", number_or_dash(partition.gi, -1), number_or_dash(partition.ci, -1));
  row[3] = bytes_text(partition.memory_bytes);
  if (partition.reserved_by) row[kState] = holder_text(partition.reserved_by);
  row.back() = partition.uuid;
  return row;
}

// The columns in which some device has a value.
std::vector<size_t> used_columns(const std::vector<Row>& rows) {
  std::vector<size_t> columns;
  for (size_t column = 0; column < kHeading.size(); ++column)
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const Row& row) { return !row[column].empty() && row[column] != "-"; }))
      columns.push_back(column);
  return columns;
}

Row only(const Row& row, const std::vector<size_t>& columns) {
  Row out;
  for (size_t column : columns) out.push_back(row[column]);
  while (out.size() > 1 && out.back().empty()) out.pop_back();
  return out;
}

std::string devices_text(const Inventory& inventory, const Host& host) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < host.count; ++i) {
    const Device& device = inventory.devices[static_cast<size_t>(host.first + i)];
    rows.push_back(device_row(device));
    for (const Partition& partition : device.partitions) rows.push_back(partition_row(partition));
  }
  if (rows.empty()) return "no devices\n";
  const std::vector<size_t> columns = used_columns(rows);
  Table table(only(kHeading, columns));
  for (const Row& row : rows) table.add(only(row, columns));
  return table.text();
}

// A row and a column for each device that has a link.
std::string links_text(const Host& host) {
  std::vector<int32_t> linked;
  for (const Link& link : host.links) linked.insert(linked.end(), {link.a, link.b});
  std::sort(linked.begin(), linked.end());
  linked.erase(std::unique(linked.begin(), linked.end()), linked.end());
  const auto place = [&](int32_t index) {
    return static_cast<size_t>(std::lower_bound(linked.begin(), linked.end(), index) - linked.begin()) + 1;
  };
  std::vector<Row> rows(linked.size() + 1, Row(linked.size() + 1, "-"));
  rows[0][0] = "links";
  for (int32_t index : linked) {
    rows[0][place(index)] = rows[place(index)][0] = std::to_string(index);
    rows[place(index)][place(index)] = "X";
  }
  for (const Link& link : host.links) {
    rows[place(link.a)][place(link.b)] = link.kind;
    rows[place(link.b)][place(link.a)] = link.kind;
  }
  Table table(rows[0]);
  for (size_t i = 1; i < rows.size(); ++i) table.add(rows[i]);
  return table.text();
}

// The matrix grows with the square of the devices; beyond this size it is unreadable and would fill the memory.
constexpr size_t kMostInMatrix = 64;

std::string host_links_text(const Host& host) {
  if (host.links.empty()) return {};
  if (static_cast<size_t>(host.count) > kMostInMatrix) return fmt::format("{} links\n", host.links.size());
  return "\n" + links_text(host);
}

}  // namespace

std::string inventory_text(const Inventory& inventory) {
  std::string out;
  for (const Host& host : inventory.hosts) {
    if (inventory.hosts.size() > 1) out += fmt::format("{}host {}\n", out.empty() ? "" : "\n", host.name);
    out += devices_text(inventory, host) + host_links_text(host) + vulkan_lines(inventory, host);
  }
  for (const std::string& note : inventory.notes) out += fmt::format("note: {}\n", note);
  return out;
}

// ---- modes and PCI addresses ----------------------------------------------------------------------------------------

namespace {

constexpr struct {
  ComputeMode mode;
  const char* name;
} kModes[] = {{ComputeMode::standard, "default"},
              {ComputeMode::exclusive_process, "exclusive_process"},
              {ComputeMode::prohibited, "prohibited"}};

}  // namespace

const char* compute_mode_name(ComputeMode mode) {
  for (const auto& row : kModes)
    if (row.mode == mode) return row.name;
  return "default";
}

std::optional<ComputeMode> compute_mode_of(std::string_view name) {
  for (const auto& row : kModes)
    if (row.name == name) return row.mode;
  return std::nullopt;
}

std::string normalise_pci(std::string_view text) {
  const auto hex = [&](size_t from, size_t count) {
    for (size_t i = from; i < from + count; ++i)
      if (!std::isxdigit(static_cast<unsigned char>(text[i]))) return false;
    return true;
  };
  const size_t domain = text.find(':');
  if (domain == text.npos || domain < 4 || domain > 8 || text.size() != domain + 8) return {};
  if (text[domain + 3] != ':' || text[domain + 6] != '.') return {};
  if (!hex(0, domain) || !hex(domain + 1, 2) || !hex(domain + 4, 2) || !hex(domain + 7, 1)) return {};
  std::string out = std::string(8 - domain, '0') + std::string(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace gsel
