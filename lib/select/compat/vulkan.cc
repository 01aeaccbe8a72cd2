// select/compat/vulkan.cc: the devices that ggml's Vulkan backend takes, in llama.cpp, whisper.cpp and ollama:
// GGML_VK_VISIBLE_DEVICES counts physical devices as vkEnumeratePhysicalDevices lists them, a program's Vulkan0,
// Vulkan1,
// ... count what that leaves, and no variable of CUDA, ROCm or Level Zero hides anything. Variables of the loader and
// of Mesa act inside the enumeration, which the inventory has as it came out. Sources:
// ggml/src/ggml-vulkan/ggml-vulkan.cpp, ggml_vk_instance_init; KhronosGroup/Vulkan-Loader 1.4,
// docs/LoaderInterfaceArchitecture.md and loader/loader_linux.c; Mesa, src/vulkan/device-select-layer.
#include "select/inventory/vulkan.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr const char* kVulkanLayer = "Vulkan";
constexpr const char* kGgmlLayer = "ggml";
constexpr const char* kMesaSelect = "MESA_VK_DEVICE_SELECT";
constexpr const char* kLoaderSelect = "VK_LOADER_DEVICE_SELECT";

// Lower is preferred, by vendor and driver; ggml's table for two drivers of one card.
int driver_priority(const VulkanDevice& vulkan) {
  constexpr uint32_t kAmd = 0x1002, kIntel = 0x8086, kNvidia = 0x10de;
  struct Row {
    uint32_t vendor;
    int32_t driver;
    int priority;
  };
  static constexpr Row kRows[] = {{kAmd, 3, 1},    {kAmd, 2, 2},    {kAmd, 1, 3},  // RADV, AMDVLK, AMD's own
                                  {kIntel, 6, 1},  {kIntel, 5, 2},                 // ANV, of Windows
                                  {kNvidia, 4, 1}, {kNvidia, 24, 2}};              // NVIDIA's own, NVK
  constexpr int32_t kDozen = 23;
  if (vulkan.driver_id == kDozen) return 100;
  for (const Row& row : kRows)
    if (row.vendor == vulkan.vendor_id && row.driver == vulkan.driver_id) return row.priority;
  return std::numeric_limits<int>::max();
}

// One host's enumeration.
class Enumeration {
 public:
  Enumeration(const Inventory& inventory, const Host& host) : inventory_(inventory), host_(host), list_(*host.vulkan) {}

  size_t size() const { return list_.size(); }
  const VulkanDevice& at(size_t index) const { return list_[index]; }

  // The unit that a Vulkan device is; nothing when the inventory has no such device, or only parts of it can be used.
  std::optional<Unit> unit(size_t index) const {
    const int32_t device = device_of_vulkan(inventory_, host_, list_[index]);
    if (device < 0 || inventory_.devices[static_cast<size_t>(device)].divided) return {};
    return Unit{device, -1, -1};
  }

  // "device 2 (GPU-c4f8...)", or what Vulkan tells of it.
  std::string text(size_t index) const {
    const auto known = unit(index);
    return known ? unit_text(inventory_, *known)
                 : fmt::format("no device of the inventory: {}", vulkan_text(list_[index]));
  }

  // What ggml takes without a variable: GPUs that it can use, of two drivers of one card the preferred one, which moves
  // to the end; else the first device that is no CPU.
  std::vector<size_t> taken_by_default() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < list_.size(); ++i) {
      if (!is_gpu(i)) continue;
      const auto same = std::find_if(out.begin(), out.end(), [&](size_t k) { return is_same_card(k, i); });
      if (same == out.end()) {
        out.push_back(i);
      } else if (driver_priority(list_[i]) < driver_priority(list_[*same])) {
        out.erase(same);
        out.push_back(i);
      }
    }
    for (size_t i = 0; out.empty() && i < list_.size(); ++i)
      if (list_[i].kind != kVulkanCpu) out.push_back(i);
    return out;
  }

  // Why ggml does not take a device by default.
  std::string why_not(size_t index, const std::vector<size_t>& taken) const {
    const VulkanDevice& vulkan = list_[index];
    if (vulkan.kind == kVulkanCpu) return "a renderer on the CPU, which ggml takes only when it is named";
    if (vulkan.kind != kVulkanDiscrete && vulkan.kind != kVulkanIntegrated)
      return fmt::format("of kind {}; ggml takes discrete and integrated GPUs", vulkan.kind);
    if (!vulkan.storage16) return "without storageBuffer16BitAccess, which ggml needs";
    const auto same = std::find_if(taken.begin(), taken.end(), [&](size_t k) { return is_same_card(k, index); });
    return same == taken.end()
               ? "not taken"
               : fmt::format("the card of index {} under another driver, of which ggml takes one", *same);
  }

  bool is_same_card(size_t a, size_t b) const { return !list_[a].uuid.empty() && list_[a].uuid == list_[b].uuid; }

 private:
  bool is_gpu(size_t index) const {
    const VulkanDevice& vulkan = list_[index];
    return (vulkan.kind == kVulkanDiscrete || vulkan.kind == kVulkanIntegrated) && vulkan.storage16;
  }

  const Inventory& inventory_;
  const Host& host_;
  const std::vector<VulkanDevice>& list_;
};

Enumeration enumeration_of(const Inventory& inventory, int32_t host) {
  const Host& of = inventory.hosts[static_cast<size_t>(host)];
  if (of.vulkan) return Enumeration(inventory, of);
  std::string why;
  for (const std::string& note : inventory.notes)
    if (note.starts_with("Vulkan: ")) why = " (" + note.substr(std::string_view("Vulkan: ").size()) + ")";
  fail(GSEL_ERR_NO_DEVICES,
       "compat=vulkan: the inventory does not tell what Vulkan enumerates{}; gsel devices --vulkan lists it where "
       "libvulkan.so.1 and a driver are, and with --json records it",
       why);
}

// ---- variables that act inside the enumeration ----

struct Select {
  uint32_t vendor = 0, device = 0;
};

// "10de:2684", hexadecimal, as sscanf reads it; what follows is ignored.
std::optional<Select> parse_select(std::string_view text) {
  Select out;
  const auto hex = [&](uint32_t& number) {
    text = stripped(text);
    if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number, 16);
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
    return read.ec == std::errc();
  };
  if (!hex(out.vendor) || !text.starts_with(":")) return {};
  text.remove_prefix(1);
  if (!hex(out.device)) return {};
  return out;
}

// The kind that a word of Mesa's layer begins with; empty: it is none.
std::string_view kind_of_word(std::string_view text) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"discrete", "discrete"}, {"dgpu", "discrete"},   {"integrated", "integrated"},
      {"igpu", "integrated"},   {"virtual", "virtual"}, {"vgpu", "virtual"},
      {"cpu", "cpu"},           {"other", "other"}};
  for (const auto& [word, kind] : kWords)
    if (text.starts_with(word)) return kind;
  return {};
}

void note_front(const Enumeration& list, const Environment& environment, const char* name, const char* who,
                bool reads_words, Trace& trace) {
  const std::string* value = find_variable(environment, name);
  if (!value || value->empty()) return;
  const Input input{name, *value};
  const Token whole{*value, 1, false};
  if (reads_words && *value == "list")
    refuse(GSEL_ERR_CONFLICT, input, whole, "makes Mesa's layer list the devices and end the process; leave it out");
  const auto select = parse_select(*value);
  const std::string_view kind = reads_words ? kind_of_word(*value) : std::string_view();
  if (!select && kind.empty()) {
    trace.add(kVulkanLayer, input, whole, "nothing",
              fmt::format("no VENDOR:DEVICE in hexadecimal, which {} ignores", who));
    return;
  }
  const auto fits = [&](size_t i) {
    const VulkanDevice& vulkan = list.at(i);
    return select ? vulkan.vendor_id == select->vendor && vulkan.device_id == select->device : vulkan.kind == kind;
  };
  const bool alone = reads_words && value->ends_with("!");
  if (list.size() > 0 && fits(0)) {
    trace.add(kVulkanLayer, input, whole, fmt::format("index 0: {}", list.text(0)),
              fmt::format("{} puts such a device first{}", who, alone ? " and shows no other" : ""));
    return;
  }
  trace.add(kVulkanLayer, input, whole, "nothing",
            fmt::format("{} puts such a device first, and this enumeration has "
                        "another one there",
                        who));
  trace.warn(
      fmt::format("{}: the enumeration does not begin with such a device: {} is not there, no device is such a "
                  "one, or the inventory was recorded without the variable",
                  input.shown(), who));
}

// Heeded before the inventory has the list, so that nothing is applied again.
void note_loader(const Enumeration& list, const Environment& environment, Trace& trace) {
  note_front(list, environment, kLoaderSelect, "the loader", false, trace);
  note_front(list, environment, kMesaSelect, "Mesa's device-select layer", true, trace);
  static constexpr std::pair<const char*, const char*> kHeeded[] = {
      {"VK_DRIVER_FILES", "the only drivers that the loader opens"},
      {"VK_ICD_FILENAMES", "the older name of VK_DRIVER_FILES, which wins"},
      {"VK_ADD_DRIVER_FILES", "drivers that the loader opens as well"},
      {"VK_LOADER_DRIVERS_SELECT", "drivers by their manifest's file name; the loader opens no others"},
      {"VK_LOADER_DRIVERS_DISABLE", "drivers by their manifest's file name, which the loader leaves out"},
      {"VK_LOADER_DEVICE_ID_FILTER", "device ids; the loader shows no others"},
      {"VK_LOADER_VENDOR_ID_FILTER", "vendor ids; the loader shows no others"},
      {"VK_LOADER_DRIVER_ID_FILTER", "driver ids; the loader shows no others"},
      {"VK_LOADER_DISABLE_SELECT", "the loader does not sort by kind and bus address"},
      {"DRI_PRIME", "Mesa's device-select layer puts that device first"}};
  for (const auto& [name, rule] : kHeeded)
    if (const std::string* value = find_variable(environment, name); value && !value->empty())
      trace.add(kVulkanLayer, {name, *value}, {*value, 1, false}, "part of the enumeration", rule);
}

void warn_of_other_masks(const Environment& environment, Trace& trace) {
  for (const char* name : {kCudaMask, kHipMask, kRocrMask, kZeMask})
    if (const std::string* value = find_variable(environment, name))
      trace.warn(fmt::format("{}: hides nothing from Vulkan programs, which do not read it (ollama issue 16508)",
                             Input{name, *value}.shown()));
}

// ---- ggml's own variable ----

// Fields between commas and white space; a run of these is one separator.
std::vector<Token> split_words(std::string_view text) {
  constexpr std::string_view kBetween = ", \t\n\v\f\r";
  std::vector<Token> out;
  for (size_t from = text.find_first_not_of(kBetween); from != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, from), text.size());
    out.push_back({std::string(text.substr(from, end - from)), static_cast<int32_t>(from) + 1, false});
    from = text.find_first_not_of(kBetween, end);
  }
  return out;
}

class GgmlMask {
 public:
  GgmlMask(const Enumeration& list, Input input, Trace& trace) : list_(list), input_(std::move(input)), trace_(trace) {}

  std::vector<size_t> read() {
    read_fields(kGgmlLayer, input_, split_words(input_.value), trace_, [&](const Token& field) { return take(field); });
    if (input_.value.empty() || (split_words(input_.value).empty()))
      trace_.add(kGgmlLayer, input_, {input_.value, 1, false}, "no device",
                 "a value without an index is an empty list");
    return taken_;
  }

 private:
  // operator>> of a stream into size_t: an optional sign, decimal digits; what follows ends the list at the next read.
  Fate take(const Token& field) {
    if (broken_) return ends("what follows the digits of the entry before ends the list");
    const Leading number = leading_number(field.text);
    if (number.kind != Leading::Kind::number) return ends("no number, which ends the list");
    if (number.negative || number.value >= static_cast<int64_t>(list_.size()))
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, field,
             fmt::format("runtime_error: Invalid Vulkan device index; Vulkan enumerates {}{}",
                         with_noun(list_.size(), "device"),
                         list_.size() ? fmt::format(", 0 to {}", list_.size() - 1) : ""));
    const auto index = static_cast<size_t>(number.value);
    const bool sign = field.text[0] == '+' || field.text[0] == '-';
    const size_t digits = std::min(field.text.find_first_not_of("0123456789", sign), field.text.size());
    broken_ = digits < field.text.size();
    warn_of(field, index);
    taken_.push_back(index);
    return kept(fmt::format("Vulkan{}, {}", taken_.size() - 1, list_.text(index)),
                "an index in the order of vkEnumeratePhysicalDevices");
  }

  void warn_of(const Token& field, size_t index) {
    const auto where = [&] {
      return fmt::format("{}: \"{}\" at column {}", input_.shown(), printable(field.text), field.column);
    };
    if (!is_number(field.text))
      trace_.warn(
          fmt::format("strict: SYNTAX: {}: an index in decimal digits is needed; ggml reads the digits", where()));
    for (const size_t before : taken_)
      if (before == index || list_.is_same_card(before, index)) {
        trace_.warn(fmt::format("strict: DUPLICATE: {}: is {}; a program then has one card as two devices", where(),
                                before == index ? "in the list already"
                                                : fmt::format("the card of index {} under another driver", before)));
        return;
      }
  }

  const Enumeration& list_;
  Input input_;
  Trace& trace_;
  bool broken_ = false;
  std::vector<size_t> taken_;
};

// Without the variable, each device with what became of it.
std::vector<size_t> by_default(const Enumeration& list, Trace& trace) {
  const std::vector<size_t> taken = list.taken_by_default();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto at = std::find(taken.begin(), taken.end(), i);
    const Token index{std::to_string(i), 1, false};
    if (at == taken.end())
      trace.add(kGgmlLayer, {"index", index.text}, index, "nothing", list.why_not(i, taken));
    else
      trace.add(kGgmlLayer, {"index", index.text}, index, fmt::format("Vulkan{}, {}", at - taken.begin(), list.text(i)),
                fmt::format("unset, {} is every GPU: {}", kGgmlMask, vulkan_text(list.at(i))));
  }
  return taken;
}

// GGML_VK_VISIBLE_DEVICES for these units: each by the index of the driver that ggml prefers.
EnvLines emit_vulkan(const Inventory& inventory, int32_t host, const std::vector<Unit>& units) {
  const Enumeration list = enumeration_of(inventory, host);
  std::string value;
  for (const Unit& unit : units) {
    std::optional<size_t> best;
    for (size_t i = 0; i < list.size(); ++i)
      if (list.unit(i) == unit && (!best || driver_priority(list.at(i)) < driver_priority(list.at(*best)))) best = i;
    if (best) value += (value.empty() ? "" : ",") + std::to_string(*best);
  }
  return {{kGgmlMask, value}};
}

}  // namespace

Reading read_vulkan(const Case& asked, Trace& trace) {
  const Enumeration list = enumeration_of(asked.inventory, asked.host);
  note_loader(list, asked.environment, trace);
  warn_of_other_masks(asked.environment, trace);
  const std::string* mask = find_variable(asked.environment, kGgmlMask);
  const std::vector<size_t> taken = mask ? GgmlMask(list, {kGgmlMask, *mask}, trace).read() : by_default(list, trace);
  Reading out;
  out.emit = emit_vulkan;
  out.hidden_by =
      mask ? "hidden by " + Input{kGgmlMask, *mask}.shown() : "no GPU of Vulkan's enumeration that ggml takes";
  for (size_t i = 0; i < taken.size(); ++i) {
    const auto unit = list.unit(taken[i]);
    const bool again = unit && std::find(out.units.begin(), out.units.end(), *unit) != out.units.end();
    if (!unit) trace.warn(fmt::format("Vulkan{} (index {}) is {}", i, taken[i], list.text(taken[i])));
    if (!unit || again) continue;
    out.units.push_back(*unit);
    out.names.push_back(fmt::format("Vulkan{}, index {}", i, taken[i]));
  }
  if (taken.empty()) trace.warn("ggml_vulkan: Found 0 Vulkan devices");
  return out;
}

}  // namespace gsel
