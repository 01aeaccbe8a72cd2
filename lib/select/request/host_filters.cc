// select/request/host_filters.cc: see hosts.h: applies a hostfile and filters to the devices that a request may use.
#include <map>
#include <set>

#include "base/text.h"
#include "select/request/hosts.h"

namespace gsel {
namespace {

constexpr size_t kMaxName = 255;  // longest host name

// The CPU comes last, so accelerators count from 0.
int64_t accelerators_of(const Inventory& inventory, const Host& host) {
  if (host.count == 0) return 0;
  return host.count - inventory.devices[static_cast<size_t>(host.first + host.count - 1)].is_cpu();
}

std::string accelerators_text(int64_t count) {
  return count == 0 ? "no accelerator" : with_noun(count, "accelerator");
}

// What a filter names: whole hosts, and devices by host and slot, each with its token.
struct Named {
  Input input;
  std::map<int32_t, Token> hosts;
  std::map<int32_t, Token> devices;  // in Inventory::devices
  std::set<int32_t> hosts_in_part;
  // In the written order: a host, or a device of a host (-1: the whole host).
  struct Entry {
    int32_t host, device;
    Token token;
  };
  std::vector<Entry> entries;
};

class Filters {
 public:
  Filters(const Inventory& inventory, const std::vector<Unit>& visible, const Request& request, Trace& trace)
      : inventory_(inventory),
        visible_(visible),
        request_(request),
        trace_(trace),
        names_(inventory, inventory.hosts.size() == 1 ? 0 : -1) {}

  std::vector<Unit> apply() {
    if (request_.hostfile)
      restrict_to_hostfile();
    else
      pool_ = visible_;
    const Named in = read("include", request_.include), out = read("exclude", request_.exclude);
    refuse_contradictions(in, out);
    return without(out, request_.include ? chosen(in) : pool_);
  }

 private:
  void restrict_to_hostfile() {
    const std::string file = request_.hostfile_name.empty() ? "hostfile" : request_.hostfile_name;
    std::map<int32_t, std::vector<Unit>> by_host;
    for (const Unit& unit : visible_) by_host[device_of(inventory_, unit).host].push_back(unit);
    for (const HostSlots& line : parse_hostfile(*request_.hostfile, file)) {
      const Place place{file, line.line, line.column, line.name};
      const int32_t host = names_.find(line.name);
      if (host < 0) throw Error(GSEL_ERR_UNKNOWN_HOST, no_such_host(line.name)).at(place);
      if (!hosts_.insert(host).second)
        throw Error(GSEL_ERR_DUPLICATE, fmt::format("{} is a host that a line before names", printable(line.name)))
            .at(place);
      take_slots(line, by_host[host], accelerators_of(inventory_, host_at(host)), place);
    }
  }

  // A CPU accepts any number of processes; accelerators are counted.
  void take_slots(const HostSlots& line, const std::vector<Unit>& units, int64_t there, const Place& place) {
    const bool cpu = !units.empty() && device_of(inventory_, units.front()).is_cpu();
    if (!cpu && line.slots > there)
      throw Error(GSEL_ERR_OUT_OF_RANGE, fmt::format("{} slots={}: this host has {}", printable(line.name), line.slots,
                                                     accelerators_text(there)))
          .at(place);
    std::set<int32_t> taken;
    for (const Unit& unit : units) {
      if (static_cast<int64_t>(taken.size()) == line.slots && !taken.contains(unit.device)) continue;
      taken.insert(unit.device);
      pool_.push_back(unit);
    }
    if (!cpu && static_cast<int64_t>(taken.size()) < line.slots)
      trace_.warn(fmt::format("{}:{}: {} slots={}: the environment and the accelerator asked for leave {} of them",
                              place.file, place.line, printable(line.name), line.slots, taken.size()));
  }

  Named read(const char* name, const std::optional<std::string>& text) {
    Named named{{name, text.value_or("")}, {}, {}, {}, {}};
    if (!text) return named;
    for (const HostTerm& term : parse_filter(named.input, trace_)) {
      const int32_t host = host_of(named.input, term.host);
      if (term.slots.empty()) {
        if (named.hosts_in_part.contains(host) || !named.hosts.emplace(host, term.host).second)
          refuse(GSEL_ERR_DUPLICATE, named.input, term.host, "this host is named before; a whole host is named once");
        named.entries.push_back({host, -1, term.host});
        continue;
      }
      if (named.hosts.contains(host))
        refuse(GSEL_ERR_DUPLICATE, named.input, term.host, "this host is named whole before");
      named.hosts_in_part.insert(host);
      for (const Token& slot : term.slots) {
        const int32_t device = device_at(named.input, term.host, host, slot);
        if (!named.devices.emplace(device, slot).second)
          refuse(GSEL_ERR_DUPLICATE, named.input, slot, "this slot is named before");
        named.entries.push_back({host, device, slot});
      }
    }
    return named;
  }

  int32_t host_of(const Input& input, const Token& token) const {
    const int32_t host = names_.find(token.text);
    if (host < 0) refuse(GSEL_ERR_UNKNOWN_HOST, input, token, no_such_host(token.text));
    if (request_.hostfile && !hosts_.contains(host))
      refuse(GSEL_ERR_UNKNOWN_HOST, input, token, "the hostfile has no such host");
    return host;
  }

  int32_t device_at(const Input& input, const Token& name, int32_t host, const Token& slot) const {
    const int64_t number = number_of(slot.text), there = accelerators_of(inventory_, host_at(host));
    if (number >= there)
      refuse(GSEL_ERR_OUT_OF_RANGE, input, slot,
             fmt::format("{} has {}{}", printable(name.text), accelerators_text(there),
                         there == 0 ? "" : fmt::format(", slots 0 to {}", there - 1)));
    return host_at(host).first + static_cast<int32_t>(number);
  }

  // Excluding a part of a host that is included as a whole is no contradiction.
  void refuse_contradictions(const Named& in, const Named& out) const {
    for (const Named::Entry& entry : out.entries) {
      const bool host_too = in.hosts.contains(entry.host) || in.hosts_in_part.contains(entry.host);
      if (entry.device < 0 ? host_too : in.devices.contains(entry.device))
        refuse(GSEL_ERR_CONFLICT, out.input, entry.token, "include names it as well");
    }
  }

  std::vector<Unit> chosen(const Named& in) {
    std::map<int32_t, std::vector<Unit>> by_device, by_host;
    for (const Unit& unit : pool_) {
      by_device[unit.device].push_back(unit);
      by_host[device_of(inventory_, unit).host].push_back(unit);
    }
    std::vector<Unit> units;
    for (const Named::Entry& entry : in.entries) {
      const std::vector<Unit>& found = entry.device < 0 ? by_host[entry.host] : by_device[entry.device];
      if (found.empty()) refuse_absent(in.input, entry);
      for (const Unit& unit : found) {
        units.push_back(unit);
        trace_.add("request", in.input, entry.token, unit_text(inventory_, unit), "slots count in bus order");
      }
    }
    return units;
  }

  [[noreturn]] void refuse_absent(const Input& input, const Named::Entry& entry) const {
    if (entry.device < 0)
      refuse(GSEL_ERR_CONFLICT, input, entry.token,
             "the environment and the accelerator asked for leave no device of this host");
    for (const Unit& unit : visible_)
      if (unit.device == entry.device)
        refuse(GSEL_ERR_OUT_OF_RANGE, input, entry.token, "the hostfile gives this host fewer slots");
    refuse(GSEL_ERR_CONFLICT, input, entry.token,
           "the environment hides this device, or it is not of the accelerator asked for");
  }

  std::vector<Unit> without(const Named& out, std::vector<Unit> units) {
    std::erase_if(units, [&](const Unit& unit) {
      const auto device = out.devices.find(unit.device);
      const auto host = out.hosts.find(device_of(inventory_, unit).host);
      if (device == out.devices.end() && host == out.hosts.end()) return false;
      const Token& token = device == out.devices.end() ? host->second : device->second;
      trace_.add("request", out.input, token, unit_text(inventory_, unit) + " left out", "slots count in bus order");
      return true;
    });
    return units;
  }

  std::string no_such_host(std::string_view name) const {
    std::vector<std::string_view> names;
    for (const Host& host : inventory_.hosts) names.push_back(host.name);
    const std::string near = nearest(name.substr(0, kMaxName), names);
    return fmt::format("the inventory has no host \"{}\"{}", printable(name),
                       near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
  }

  const Host& host_at(int32_t host) const { return inventory_.hosts[static_cast<size_t>(host)]; }

  const Inventory& inventory_;
  const std::vector<Unit>& visible_;
  const Request& request_;
  Trace& trace_;
  HostNames names_;
  std::vector<Unit> pool_;   // units of visible_ that the hostfile leaves
  std::set<int32_t> hosts_;  // in the hostfile
};

}  // namespace

std::vector<Unit> apply_host_filters(const Inventory& inventory, const std::vector<Unit>& visible,
                                     const Request& request, Trace& trace) {
  return Filters(inventory, visible, request, trace).apply();
}

}  // namespace gsel
