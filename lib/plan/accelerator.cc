// plan/accelerator.cc: see accelerator.h. Figures are dense ones from the makers' data sheets; matmul_share is the best
// matrix product published for the class (stas00/ml-engineering, compute/accelerator). NVLink: NCCL's figures of one
// link (src/graph/topo.h). Figures that a data sheet does not have are derived, and `source` says so.
#include "plan/accelerator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace gsel::plan {
namespace {

constexpr double G = 1e9, T = 1e12;
constexpr double GB = 0.985 * (1 << 30);  // what a driver reports for a gigabyte of a data sheet
constexpr double kPcie3 = 12 * G, kPcie4 = 24 * G, kPcie5 = 48 * G;
constexpr double k100Gb = 12.5 * G;

// name, class, memory, its rate, 16-bit, tf32, f32, 8-bit, best share, link, one link, PCIe, network, per node, source
// clang-format off
constexpr Accelerator kTable[] = {
    {"V100-SXM2-32GB", "v100", 32 * GB, 900 * G, 125 * T, 0, 15.7 * T, 0, 0.75, 150 * G, 20 * G, kPcie3, k100Gb / 2, 8, "V100 data sheet"},
    {"V100-SXM2-16GB", "v100", 16 * GB, 900 * G, 125 * T, 0, 15.7 * T, 0, 0.75, 150 * G, 20 * G, kPcie3, k100Gb / 2, 8, "V100 data sheet"},
    {"V100-PCIe", "v100", 16 * GB, 900 * G, 112 * T, 0, 14 * T, 0, 0.75, 0, 20 * G, kPcie3, k100Gb / 4, 4, "V100 data sheet"},
    {"V100S-PCIe", "v100", 32 * GB, 1134 * G, 130 * T, 0, 16.4 * T, 0, 0.75, 0, 20 * G, kPcie3, k100Gb / 4, 4, "V100 data sheet"},
    {"T4", "t4", 16 * GB, 320 * G, 65 * T, 0, 8.1 * T, 0, 0.5, 0, 0, kPcie3, k100Gb / 8, 4, "T4 data sheet"},
    {"TITAN-RTX", "titan-rtx", 24 * GB, 672 * G, 130 * T, 0, 16.3 * T, 0, 0.7, 50 * G, 25 * G, kPcie3, k100Gb / 4, 2, "TITAN RTX announcement"},
    {"RTX-2080-Ti", "rtx2080", 11 * GB, 616 * G, 108 * T, 0, 13.4 * T, 0, 0.6, 0, 25 * G, kPcie3, k100Gb / 8, 4, "Turing white paper"},
    {"RTX-3060", "rtx30", 12 * GB, 360 * G, 51 * T, 25.5 * T, 12.7 * T, 0, 0.7, 0, 0, kPcie4, k100Gb / 8, 1, "GA102 white paper, derived"},
    {"RTX-3080", "rtx30", 10 * GB, 760 * G, 59.5 * T, 29.8 * T, 29.8 * T, 0, 0.7, 0, 0, kPcie4, k100Gb / 8, 2, "GA102 white paper"},
    {"RTX-3090", "rtx30", 24 * GB, 936 * G, 71 * T, 35.6 * T, 35.6 * T, 0, 0.7, 0, 12 * G, kPcie4, k100Gb / 8, 2, "GA102 white paper"},
    {"A10", "a10", 24 * GB, 600 * G, 125 * T, 62.5 * T, 31.2 * T, 0, 0.6, 0, 0, kPcie4, k100Gb / 8, 4, "A10 data sheet"},
    {"A30", "a30", 24 * GB, 933 * G, 165 * T, 82 * T, 10.3 * T, 0, 0.75, 0, 20 * G, kPcie4, k100Gb / 4, 4, "A30 data sheet"},
    {"A40", "a40", 48 * GB, 696 * G, 149.7 * T, 74.8 * T, 37.4 * T, 0, 0.65, 0, 12 * G, kPcie4, k100Gb / 4, 8, "A40 data sheet"},
    {"RTX-A6000", "a40", 48 * GB, 768 * G, 154.8 * T, 77.4 * T, 38.7 * T, 0, 0.65, 0, 12 * G, kPcie4, k100Gb / 4, 4, "RTX A6000 data sheet"},
    {"A100-SXM-80GB", "a100", 80 * GB, 2039 * G, 312 * T, 156 * T, 19.5 * T, 0, 0.87, 300 * G, 20 * G, kPcie4, 2 * k100Gb, 8, "A100 data sheet"},
    {"A100-SXM-40GB", "a100", 40 * GB, 1555 * G, 312 * T, 156 * T, 19.5 * T, 0, 0.87, 300 * G, 20 * G, kPcie4, 2 * k100Gb, 8, "A100 data sheet"},
    {"A100-PCIe-80GB", "a100", 80 * GB, 1935 * G, 312 * T, 156 * T, 19.5 * T, 0, 0.81, 0, 20 * G, kPcie4, k100Gb, 8, "A100 data sheet"},
    {"A100-PCIe-40GB", "a100", 40 * GB, 1555 * G, 312 * T, 156 * T, 19.5 * T, 0, 0.81, 0, 20 * G, kPcie4, k100Gb, 8, "A100 data sheet"},
    {"L4", "l4", 24 * GB, 300 * G, 121 * T, 60 * T, 30.3 * T, 242 * T, 0.6, 0, 0, kPcie4, k100Gb / 8, 8, "L4 data sheet, dense"},
    {"L40S", "l40s", 48 * GB, 864 * G, 362 * T, 183 * T, 91.6 * T, 733 * T, 0.65, 0, 0, kPcie4, k100Gb / 2, 8, "L40S data sheet"},
    {"L40", "l40s", 48 * GB, 864 * G, 181 * T, 90.5 * T, 90.5 * T, 362 * T, 0.65, 0, 0, kPcie4, k100Gb / 2, 8, "L40 data sheet"},
    {"RTX-4070-Ti", "rtx40", 12 * GB, 504 * G, 80 * T, 40 * T, 40 * T, 160 * T, 0.8, 0, 0, kPcie4, k100Gb / 8, 2, "AD102 white paper, derived"},
    {"RTX-4080", "rtx40", 16 * GB, 717 * G, 97.5 * T, 48.7 * T, 48.7 * T, 195 * T, 0.8, 0, 0, kPcie4, k100Gb / 8, 2, "AD102 white paper, derived"},
    {"RTX-4090", "rtx40", 24 * GB, 1008 * G, 165 * T, 82.6 * T, 82.6 * T, 330 * T, 0.8, 0, 0, kPcie4, k100Gb / 8, 2, "AD102 white paper, f32 sums"},
    {"RTX-6000-Ada", "rtx6000-ada", 48 * GB, 960 * G, 364 * T, 182 * T, 91.1 * T, 728 * T, 0.65, 0, 0, kPcie4, k100Gb / 4, 4, "AD102 white paper"},
    {"RTX-5090", "rtx50", 32 * GB, 1792 * G, 209.5 * T, 104.8 * T, 104.8 * T, 419 * T, 0.8, 0, 0, kPcie5, k100Gb / 8, 2, "RTX Blackwell white paper, f32 sums"},
    {"H100-SXM", "h100", 80 * GB, 3350 * G, 989 * T, 494.5 * T, 67 * T, 1979 * T, 0.80, 450 * G, 20.6 * G, kPcie5, 4 * k100Gb, 8, "H100 data sheet"},
    {"H100-PCIe", "h100-pcie", 80 * GB, 2000 * G, 756 * T, 378 * T, 51 * T, 1513 * T, 0.75, 0, 20.6 * G, kPcie5, 2 * k100Gb, 8, "H100 data sheet"},
    {"H100-NVL", "h100-pcie", 94 * GB, 3900 * G, 835 * T, 417 * T, 60 * T, 1671 * T, 0.75, 300 * G, 20.6 * G, kPcie5, 2 * k100Gb, 8, "H100 NVL data sheet"},
    {"H200", "h200", 141 * GB, 4800 * G, 989 * T, 494.5 * T, 67 * T, 1979 * T, 0.80, 450 * G, 20.6 * G, kPcie5, 4 * k100Gb, 8, "H200 data sheet"},
    {"H200-NVL", "h100-pcie", 141 * GB, 4800 * G, 835 * T, 417 * T, 60 * T, 1671 * T, 0.75, 450 * G, 20.6 * G, kPcie5, 2 * k100Gb, 8, "H200 NVL data sheet"},
    {"GH200", "h200", 96 * GB, 4000 * G, 989 * T, 494.5 * T, 67 * T, 1979 * T, 0.80, 450 * G, 20.6 * G, kPcie5, 4 * k100Gb, 1, "GH200 data sheet"},
    {"B200", "b200", 180 * GB, 8000 * G, 2250 * T, 1125 * T, 80 * T, 4500 * T, 0.78, 900 * G, 40.1 * G, kPcie5, 4 * k100Gb, 8, "HGX B200 data sheet"},
    {"B300", "b300", 270 * GB, 8000 * G, 2250 * T, 1125 * T, 75 * T, 4500 * T, 0.78, 900 * G, 40.1 * G, kPcie5, 8 * k100Gb, 8, "HGX B300 data sheet"},
    {"GB200", "gb200", 186 * GB, 8000 * G, 2500 * T, 1250 * T, 80 * T, 5000 * T, 0.73, 900 * G, 40.1 * G, kPcie5, 4 * k100Gb, 72, "GB200 NVL72 data sheet"},
    {"GB300", "gb300", 279 * GB, 8000 * G, 2500 * T, 1250 * T, 80 * T, 5000 * T, 0.73, 900 * G, 40.1 * G, kPcie5, 8 * k100Gb, 72, "GB300 NVL72 data sheet"},
    {"MI250X", "mi250", 128 * GB, 3277 * G, 383 * T, 0, 47.9 * T, 0, 0.6, 350 * G, 50 * G, kPcie4, 2 * k100Gb, 4, "MI250X data sheet"},
    {"MI300X", "mi300", 192 * GB, 5300 * G, 1307 * T, 653.7 * T, 163.4 * T, 2614 * T, 0.51, 448 * G, 64 * G, kPcie5, 4 * k100Gb, 8, "MI300X data sheet"},
    {"MI325X", "mi300", 256 * GB, 6000 * G, 1307 * T, 653.7 * T, 163.4 * T, 2614 * T, 0.60, 448 * G, 64 * G, kPcie5, 4 * k100Gb, 8, "MI325X data sheet"},
    {"Gaudi2", "gaudi2", 96 * GB, 2460 * G, 432 * T, 0, 0, 865 * T, 0.97, 300 * G, 0, kPcie4, 3 * k100Gb, 8, "Gaudi2 white paper"},
    {"Gaudi3", "gaudi3", 128 * GB, 3700 * G, 1677 * T, 459 * T, 229 * T, 1677 * T, 0.74, 600 * G, 0, kPcie5, 6 * k100Gb, 8, "Gaudi3 white paper"},
    {"Max-1550", "max1550", 128 * GB, 3277 * G, 832 * T, 419 * T, 52 * T, 0, 0.33, 150 * G, 0, kPcie5, 2 * k100Gb, 6, "Data Center GPU Max, and ALCF's measurements"},
    {"M2-Ultra", "m2-ultra", 192 * GB, 800 * G, 27.2 * T, 0, 27.2 * T, 0, 0.8, 0, 0, kPcie4, k100Gb / 10, 1, "M2 Ultra announcement"},
};
// clang-format on

// A name in lower case, without remarks in parentheses and without the characters between its words. A word may begin
// or end at cut[i], before character i.
struct Letters {
  std::string text;
  std::vector<bool> cut{true};
  explicit Letters(std::string_view name) {
    bool gap = true;
    char before = 0;
    int32_t depth = 0;
    for (const char c : name) {
      const auto u = static_cast<unsigned char>(c);
      depth += c == '(' ? 1 : c == ')' && depth > 0 ? -1 : 0;
      if (depth > 0 || !std::isalnum(u)) {
        gap = true;
        continue;
      }
      const bool turns = std::isdigit(u) != std::isdigit(static_cast<unsigned char>(before));
      if (!text.empty()) cut.push_back(gap || turns);
      text += static_cast<char>(std::tolower(u));
      before = c;
      gap = false;
    }
    if (!text.empty()) cut.push_back(true);
  }
};

// Words next to a model's name that do not distinguish models.
constexpr std::string_view kNeutral[] = {"nvidia", "tesla",       "geforce", "amd",    "instinct", "intel",    "habana",
                                         "apple",  "corporation", "data",    "center", "gpu",      "graphics", "tensor",
                                         "core",   "generation",  "hgx",     "dgx",    "nvl72",    "oam",      "mcm",
                                         "ac",     "mba",         "vf",      "hbm2",   "hbm2e",    "hbm3",     "hbm3e",
                                         "gddr6",  "gddr6x",      "gddr7"};
constexpr std::string_view kForms[][2] = {{"sxm2", "sxm"}, {"sxm3", "sxm"},  {"sxm4", "sxm"},
                                          {"sxm5", "sxm"}, {"sxm6", "sxm"},  {"sxm", "sxm"},
                                          {"dgxs", "sxm"}, {"pcie", "pcie"}, {"nvl", "nvl"}};

// Names of boards that have nothing in common with the names of their rows. GH200 boards are also named after the
// memory of their CPU.
constexpr std::string_view kAliases[][2] = {{"hl225", "Gaudi2"},     {"hl325", "Gaudi3"},    {"hl325l", "Gaudi3"},
                                            {"gh200480gb", "GH200"}, {"gh200144g", "GH200"}, {"mi250xmi250", "MI250X"}};

// The form and the memory size in a name, besides the model.
struct Beside {
  std::string_view form;
  std::string memory;  // "80"
};

// Whether all words from begin to end are known.
bool read_beside(const Letters& name, size_t begin, size_t end, Beside& beside) {
  const std::string_view text = std::string_view(name.text).substr(0, end);
  while (begin < end) {
    size_t next = begin;
    const auto take = [&](std::string_view word) {
      const size_t to = begin + word.size();
      const bool taken = text.substr(begin).starts_with(word) && name.cut[to] && to > next;
      if (taken) next = to;
      return taken;
    };
    for (const std::string_view word : kNeutral) take(word);
    for (const auto& [word, form] : kForms)
      if (take(word)) beside.form = form;
    size_t digits = begin;
    while (digits < end && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
    const std::string number(text.substr(begin, digits - begin));
    for (const char* unit : {"gb", "gib"})
      if (!number.empty() && take(number + unit)) beside.memory = number;
    if (next == begin) return false;
    begin = next;
  }
  return true;
}

// The words of a row's name: model, form and memory; "" if missing.
struct Words {
  std::string model, form, memory;
};
Words words_of(const Accelerator& row) {
  Words words;
  std::string_view rest = row.name;
  while (!rest.empty()) {
    const size_t dash = std::min(rest.find('-'), rest.size());
    const std::string word = Letters(rest.substr(0, dash)).text;
    rest.remove_prefix(std::min(dash + 1, rest.size()));
    const auto form = std::ranges::find(kForms, word, [](const auto& pair) { return pair[0]; });
    if (form != std::end(kForms))
      words.form = (*form)[1];
    else if (word.ends_with("gb"))
      words.memory = word.substr(0, word.size() - 2);
    else
      words.model += word;
  }
  return words;
}

// How well a name matches a row; 0: the name has another model or form, or unknown words.
size_t points_of(const Accelerator& row, const Words& words, std::string_view model, const Letters& name) {
  size_t most = 0;
  for (size_t at = name.text.find(model); at != name.text.npos; at = name.text.find(model, at + 1)) {
    const size_t end = at + model.size();
    Beside beside;
    if (!name.cut[at] || !name.cut[end] || !read_beside(name, 0, at, beside) ||
        !read_beside(name, end, name.text.size(), beside))
      continue;
    const std::string form = !words.form.empty() ? words.form : row.link_bytes_per_second > 0 ? "sxm" : "pcie";
    if (!beside.form.empty() && beside.form != form) continue;
    most = std::max(most, 100 * model.size() + (!beside.memory.empty() && beside.memory == words.memory ? 1 : 0));
  }
  return most;
}

// Distance of an unknown name from a row: by model, then by memory.
std::array<int64_t, 3> unlikeness(std::string_view name, const Accelerator& row) {
  const auto zeros = [](std::string text) {  // "A1OO" is meant as "A100"
    std::ranges::replace(text, 'o', '0');
    return text;
  };
  const std::string all = Letters(name).text;
  std::string rest;
  const Letters letters(name);
  for (size_t at = 0; at < all.size();) {
    size_t end = at + 1;
    while (!letters.cut[end]) ++end;
    const std::string word = all.substr(at, end - at);
    if (std::ranges::find(kNeutral, word) == std::end(kNeutral)) rest += word;
    at = end;
  }
  const Words row_words = words_of(row);
  const std::string model = zeros(row_words.model), found = zeros(rest);
  const bool inside = !found.empty() && (found.find(model) != found.npos || model.find(found) != model.npos);
  const int64_t distance = edit_distance(found, model);
  return {inside ? std::min<int64_t>(distance, 1) : distance, inside ? -static_cast<int64_t>(model.size()) : 0,
          !row_words.memory.empty() && found.find(row_words.memory) != found.npos ? 0 : 1};
}

}  // namespace

std::span<const Accelerator> accelerators() {
  return kTable;
}

const Accelerator* find_accelerator(std::string_view name) {
  const Letters letters(name);
  const Accelerator* best = nullptr;
  size_t most = 0;
  for (const Accelerator& row : kTable) {
    const Words words = words_of(row);
    size_t points = points_of(row, words, words.model, letters);
    for (const auto& [alias, of] : kAliases)
      if (of == row.name) points = std::max(points, points_of(row, words, alias, letters));
    if (points > most) best = &row, most = points;
  }
  return best;
}

std::string nearest_accelerators(std::string_view name) {
  std::vector<std::pair<std::array<int64_t, 3>, std::string_view>> all;
  for (const Accelerator& row : kTable) all.emplace_back(unlikeness(name, row), row.name);
  std::ranges::stable_sort(all, {}, [](const auto& pair) { return pair.first; });
  return fmt::format("{}, {} and {}", all[0].second, all[1].second, all[2].second);
}

const Accelerator& accelerator(std::string_view name) {
  if (const Accelerator* found = find_accelerator(name)) return *found;
  fail(GSEL_ERR_ARG,
       "accelerator {} is not known; the nearest names are {}; where yours is another, take the one that is nearest in "
       "speed, with --memory",
       in_quotes(name), nearest_accelerators(name));
}

}  // namespace gsel::plan
