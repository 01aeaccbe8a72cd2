// select/compat/habana.cc: which Gaudi a process uses: always exactly one. HABANA_VISIBLE_MODULES lists module ids, and
// a process uses entry number LOCAL_RANK; HABANA_VISIBLE_DEVICES takes effect before, when a container is created.
// Source: Gaudi documentation, "Multiple Workloads on a Single Docker" and "Multiple Dockers Each with a Single
// Workload".
#include <algorithm>
#include <optional>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr const char* kRank = "LOCAL_RANK";
constexpr const char* kGaudiLayer = "Gaudi";

// The devices that the container runtime mounted.
std::vector<int32_t> mounted(std::vector<int32_t> devices, const Inventory& inventory, const Environment& environment,
                             Trace& trace) {
  const std::string* value = find_variable(environment, kHabanaDevices);
  if (!value) return devices;
  const Input input{kHabanaDevices, *value};
  const Token whole{*value, 1, false};
  const std::string word = lower_case(stripped(*value));
  if (word.empty() || word == "all") {
    trace.add("container", input, whole, "every device", "mounts all");
    return devices;
  }
  const std::vector<Token> fields = split_fields(*value, ',');
  const auto is_here = [&](const Token& field) {
    const std::string_view text = stripped(field.text);
    return is_number(text) && number_of(text) < static_cast<int64_t>(devices.size());
  };
  if (!std::all_of(fields.begin(), fields.end(), is_here)) {
    trace.add("container", input, whole, "nothing",
              "names devices of the host that are not here: the container runtime has applied it already");
    return devices;
  }
  std::vector<int32_t> out;
  for (const Token& field : fields) {
    const int32_t device = devices[static_cast<size_t>(number_of(stripped(field.text)))];
    if (std::find(out.begin(), out.end(), device) == out.end()) out.push_back(device);
    trace.add("container", input, field, unit_text(inventory, {device, -1, -1}),
              "an index of the container runtime, which may change at a reboot");
  }
  trace.warn(fmt::format("{} acts when a container is created: taken here as that container's view", input.shown()));
  return out;
}

// Nothing when the process has no rank.
std::optional<int64_t> local_rank(const Environment& environment) {
  const std::string* value = find_variable(environment, kRank);
  if (!value) return std::nullopt;
  const std::string_view text = stripped(*value);
  if (!is_number(text))
    refuse(GSEL_ERR_SYNTAX, {kRank, *value}, {*value, 1, false},
           fmt::format("ValueError: invalid literal for int() with base 10: '{}'", printable(*value)));
  return number_of(text);
}

class Process {
 public:
  Process(const Inventory& inventory, std::vector<int32_t> devices, Trace& trace)
      : inventory_(inventory), devices_(std::move(devices)), trace_(trace) {}

  std::vector<Unit> by_entry(const Input& modules, std::optional<int64_t> rank) {
    const std::vector<Token> fields = split_fields(modules.value, ',');
    if (!rank) return first_idle(modules, fields);
    if (*rank >= static_cast<int64_t>(fields.size()))
      refuse(GSEL_ERR_RANK_OVERFLOW, {kRank, std::to_string(*rank)}, {std::to_string(*rank), 1, false},
             fmt::format("IndexError: {} has {}", modules.shown(), with_noun(fields.size(), "entry")));
    std::vector<Unit> taken;
    for (size_t i = 0; i < fields.size(); ++i) {
      if (static_cast<int64_t>(i) == *rank)
        taken = by_module(modules, fields[i], "the module of the entry numbered LOCAL_RANK");
      else
        trace_.add(kGaudiLayer, modules, fields[i], "nothing", "the entry of another local rank");
    }
    return taken;
  }

  std::vector<Unit> by_rank(int64_t rank) {
    const std::string text = std::to_string(rank);
    return by_module({kRank, text}, {text, 1, false}, "without HABANA_VISIBLE_MODULES the module is the local rank");
  }

  std::vector<Unit> any_idle() {
    for (const int32_t device : devices_)
      if (is_idle(device)) return {{device, -1, -1}};
    return {};
  }

 private:
  bool is_idle(int32_t device) const { return inventory_.devices[static_cast<size_t>(device)].process_count <= 0; }

  // If the inventory has no module ids, modules are assumed to be numbered as the driver enumerates.
  int32_t device_of(std::string_view text) const {
    if (!is_number(stripped(text))) return -1;
    const int64_t module = number_of(stripped(text));
    for (size_t i = 0; i < devices_.size(); ++i) {
      const int32_t told = inventory_.devices[static_cast<size_t>(devices_[i])].module;
      if (module == (told >= 0 ? told : static_cast<int64_t>(i))) return devices_[i];
    }
    return -1;
  }

  std::vector<Unit> by_module(const Input& input, const Token& field, const char* rule) {
    const int32_t device = device_of(field.text);
    trace_.add(kGaudiLayer, input, field, device < 0 ? "nothing" : unit_text(inventory_, {device, -1, -1}),
               device < 0 ? "no device has this module id" : rule);
    return device < 0 ? std::vector<Unit>{} : std::vector<Unit>{{device, -1, -1}};
  }

  std::vector<Unit> first_idle(const Input& modules, const std::vector<Token>& fields) {
    std::vector<Unit> taken;
    for (const Token& field : fields) {
      const int32_t device = device_of(field.text);
      const char* rule = device < 0        ? "no device has this module id"
                         : !taken.empty()  ? "a process takes one device"
                         : is_idle(device) ? "no local rank is set: the first idle device"
                                           : "a process computes on it";
      if (device >= 0 && taken.empty() && is_idle(device)) taken.push_back({device, -1, -1});
      const bool this_one = !taken.empty() && taken.front().device == device;
      trace_.add(kGaudiLayer, modules, field, this_one ? unit_text(inventory_, taken.front()) : "nothing", rule);
    }
    return taken;
  }

  const Inventory& inventory_;
  std::vector<int32_t> devices_;
  Trace& trace_;
};

}  // namespace

Reading read_habana(const Case& asked, Trace& trace) {
  const Group group = accessible_part(group_of(asked.inventory, asked.host, "habana"), trace);
  Process process(asked.inventory, mounted(driver_order(group), asked.inventory, asked.environment, trace), trace);
  const std::optional<int64_t> rank = local_rank(asked.environment);
  const std::string* modules = find_variable(asked.environment, kHabanaModules);
  Reading out;
  if (modules && !modules->empty())
    out.units = process.by_entry({kHabanaModules, *modules}, rank);
  else
    out.units = rank ? process.by_rank(*rank) : process.any_idle();
  out.hidden_by = "not taken: a Gaudi process takes one device";
  if (out.units.empty()) trace.warn("synDeviceAcquire finds no device: none of those visible is there and idle");
  return out;
}

}  // namespace gsel
