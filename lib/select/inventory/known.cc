// select/inventory/known.cc: search in the table of known_table.cc, and typical links. Whole words are compared, so
// that T4 is not found in T400, nor A10 in A100.
#include "select/inventory/known.h"

#include <cctype>
#include <charconv>
#include <unordered_map>

namespace gsel {
namespace {

constexpr size_t kLongestName = 200;  // no product's name is longer

// "Intel(R) Data Center GPU Max 1550" becomes "intel r data center gpu max 1550".
std::string words_of(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kLongestName)) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte))
      out += static_cast<char>(std::tolower(byte));
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

std::string_view first_word(std::string_view words) {
  return words.substr(0, words.find(' '));
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const std::string_view here = first_word(words.substr(at));
    if (here == word) return true;
    at += here.size() + 1;
  }
  return false;
}

bool of_a_laptop(std::string_view words) {
  return has_word(words, "laptop") || has_word(words, "mobile") || words.find("max q") != words.npos;
}

// Rows by their first word, so that a long list of devices is read quickly.
using Rows = std::unordered_multimap<std::string_view, const Known*>;
const Rows& rows() {
  static const Rows table = [] {
    Rows out;
    for (const Known& row : known_table()) out.emplace(first_word(row.name), &row);
    return out;
  }();
  return table;
}

bool begins_with_words(std::string_view text, std::string_view words) {
  return text.starts_with(words) && (text.size() == words.size() || text[words.size()] == ' ');
}

double nvlink_bytes_per_second(const Device& device) {
  switch (device.capability_major) {
    case 6:
      return 20e9;
    case 8:
      return device.capability_minor == 0 ? 25e9 : 14.0625e9;
    case 10:
      return 50e9;
    default:
      return 25e9;
  }
}

}  // namespace

const Known& known_accelerator(std::string_view vendor, std::string_view name) {
  static const Known none;
  const std::string words = words_of(name);
  const std::string_view text = words;
  const bool laptop = of_a_laptop(text);
  const Known* best = &none;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto [begin, end] = rows().equal_range(first_word(rest));
    for (auto row = begin; row != end; ++row) {
      const Known& known = *row->second;
      if (known.vendor == vendor && known.name.size() > best->name.size() && begins_with_words(rest, known.name) &&
          of_a_laptop(known.name) == laptop)
        best = &known;
    }
    at += first_word(rest).size() + 1;
  }
  return *best;
}

// NVLink: NVIDIA's architecture white papers (per link in one direction: P100 20 GB/s; V100, A100 and H100 25; GA102
// 14.06; B200 50). XGMI: AMD's data sheets (per link: MI200 50 GB/s, MI300 64, MI350 76.8). PCI: what 16 lanes of PCIe
// 4.0 achieve in practice, less with each bridge between; kinds are named as in nvidia-smi topo.
LinkFigures typical_link(std::string_view kind, const Device& device) {
  static constexpr struct {
    std::string_view kind;
    LinkFigures figures;
  } kByName[] = {{"PIX", {24e9, 2e-6}},
                 {"PXB", {22e9, 2.5e-6}},
                 {"PHB", {20e9, 3e-6}},
                 {"NODE", {18e9, 3.5e-6}},
                 {"SYS", {12e9, 5e-6}}};
  for (const auto& row : kByName)
    if (row.kind == kind) return row.figures;
  if (kind == "XGMI") {
    const double rate = device.architecture == "gfx950" ? 76.8e9 : device.architecture == "gfx942" ? 64e9 : 50e9;
    return {rate, 2e-6};
  }
  int links = 0;
  const char* end = kind.data() + kind.size();
  if (!kind.starts_with("NV")) return {};
  const auto parsed = std::from_chars(kind.data() + 2, end, links);
  if (parsed.ec != std::errc() || parsed.ptr != end || links < 1) return {};
  return {links * nvlink_bytes_per_second(device), 2e-6};
}

}  // namespace gsel
