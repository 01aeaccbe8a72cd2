// select/inventory/names.cc: see inventory.h: text forms of modes and PCI addresses.
#include <cctype>

#include "select/inventory/inventory.h"

namespace gsel {
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
