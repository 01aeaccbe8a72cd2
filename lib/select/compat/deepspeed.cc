// select/compat/deepspeed.cc: --num_gpus, --include, --exclude and --hostfile of the deepspeed launcher. A pool of
// slots per host is filtered; on each host the remaining slots become CUDA_VISIBLE_DEVICES, so a slot is a device of
// the driver without a mask. Filters are checked against the existing slots; older releases compared --include with
// itself. The result has sorted slots, and hosts in the order of the pool. Source: deepspeedai/DeepSpeed
// deepspeed/launcher/runner.py (main, _parse_hostfile, parse_resource_filter) and launch.py;
// accelerator/cuda_accelerator.py.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "select/compat/compat.h"
#include "select/compat/python_literal.h"
#include "select/request/hosts.h"

namespace gsel {
namespace {

// ---- hostfiles and filters, as DeepSpeed reads them; hosts.h reads the same forms strictly --------------------------
// Source: deepspeedai/DeepSpeed deepspeed/launcher/runner.py (_parse_hostfile, parse_node_config_list).

// Lines that match "^(\S+)\s+slots=(\d+)"; text after the number is ignored.
std::vector<HostSlots> read_deepspeed_hostfile(const std::string& text, const std::string& file);

// A filter as parse_node_config_list leaves it: hosts in the order of their first mention, slots sorted and merged.
struct DeepspeedFilter {
  struct Node {
    Token host;
    std::map<int64_t, Token> slots;  // empty: the whole host
  };
  Input input;
  std::vector<Node> nodes;
};

DeepspeedFilter read_deepspeed_filter(const Input& input, Trace& trace);

// Reads lines that match "^(\S+)\s+slots=(\d+)".
class Hostfile {
 public:
  Hostfile(const std::string& text, const std::string& file) : text_(text), file_(file.empty() ? "hostfile" : file) {}

  std::vector<HostSlots> read() {
    for (size_t from = 0; from < text_.size();) {
      const size_t end = std::min(text_.find('\n', from), text_.size());
      ++line_;
      read_line(python_strip(std::string_view(text_).substr(from, end - from)));
      from = end + 1;
    }
    if (hosts_.empty()) {
      line_ = 0;
      raise(GSEL_ERR_SYNTAX, "Hostfile is empty or not formatted correctly, unable to proceed with launching.", "");
    }
    return std::move(hosts_);
  }

 private:
  void read_line(std::string_view line) {
    if (line.empty() || line.starts_with('#')) return;
    constexpr std::string_view kBlanks = " \t\n\r\f\v", kSlots = "slots=", kDigits = "0123456789";
    const size_t name_end = std::min(line.find_first_of(kBlanks), line.size());
    const std::string_view rest = python_strip(line.substr(name_end));
    const std::string_view number =
        rest.starts_with(kSlots)
            ? rest.substr(kSlots.size()).substr(0, rest.substr(kSlots.size()).find_first_not_of(kDigits))
            : std::string_view();
    const std::string name(line.substr(0, name_end));
    if (number.empty())
      raise(GSEL_ERR_SYNTAX,
            fmt::format("Hostfile contains a bad entry: {}, unable to proceed with launching", printable(line)), line);
    if (!seen_.insert(name).second)
      raise(GSEL_ERR_DUPLICATE,
            fmt::format("Hostfile contains multiple entries for {}, unable to proceed with launching", printable(name)),
            name);
    hosts_.push_back({name, number_of(number), line_});
  }

  [[noreturn]] void raise(gsel_status code, const std::string& text, std::string_view token) const {
    throw Error(code, "ValueError: " + text).at({file_, line_, 0, std::string(token)});
  }

  const std::string& text_;
  std::string file_;
  int32_t line_ = 0;
  std::set<std::string> seen_;
  std::vector<HostSlots> hosts_;
};

class FilterReader {
 public:
  FilterReader(DeepspeedFilter& filter, Trace& trace) : filter_(filter), trace_(trace) {}

  void read() {
    const std::string& text = filter_.input.value;
    for (size_t from = 0; from <= text.size();) {
      const size_t at = std::min(text.find('@', from), text.size());
      read_node(from, at);
      from = at + 1;
    }
  }

 private:
  void read_node(size_t from, size_t to) {
    const std::string_view text = std::string_view(filter_.input.value).substr(0, to);
    const size_t colon = std::min(text.find(':', from), to);
    const Token host = token(from, colon);
    DeepspeedFilter::Node& node = node_of(host);
    if (colon == to) return;
    if (text.find(':', colon + 1) != text.npos)
      raise_python(GSEL_ERR_SYNTAX, "ValueError", "too many values to unpack (expected 2)", filter_.input,
                   token(from, to));
    int64_t last = std::numeric_limits<int64_t>::min();
    bool sorted = true;
    for (size_t start = colon + 1; start <= to;) {
      const size_t comma = std::min(text.find(',', start), to);
      const Token slot = token(start, comma);
      const std::optional<int64_t> number = python_int(slot.text);
      if (!number) raise_bad_int(filter_.input, slot, slot.text);
      sorted = sorted && *number > last;
      last = *number;
      node.slots.emplace(*number, slot);
      start = comma + 1;
    }
    if (!sorted)
      trace_.warn(fmt::format("{}: deepspeed sorts and merges the slots of {}: the order given is lost",
                              filter_.input.shown(), printable(host.text)));
  }

  DeepspeedFilter::Node& node_of(const Token& host) {
    const auto [place, fresh] = places_.emplace(host.text, filter_.nodes.size());
    if (fresh) filter_.nodes.push_back({host, {}});
    return filter_.nodes[place->second];
  }

  Token token(size_t from, size_t to) const {
    return {filter_.input.value.substr(from, to - from), static_cast<int32_t>(from) + 1, false};
  }

  DeepspeedFilter& filter_;
  Trace& trace_;
  std::map<std::string, size_t> places_;
};

std::vector<HostSlots> read_deepspeed_hostfile(const std::string& text, const std::string& file) {
  return Hostfile(text, file).read();
}

DeepspeedFilter read_deepspeed_filter(const Input& input, Trace& trace) {
  DeepspeedFilter filter{input, {}};
  FilterReader(filter, trace).read();
  return filter;
}

// ---- devices --------------------------------------------------------------------------------------------------------

constexpr int64_t kMoreSlots = 4096;  // slots allowed beyond the inventory's devices: limits a hostile hostfile
constexpr const char* kLocal = "localhost";

struct Pool {
  std::string host;
  std::vector<int64_t> slots;
};

class Deepspeed {
 public:
  Deepspeed(const Case& asked, Trace& trace)
      : asked_(asked),
        trace_(trace),
        include_(asked.request.include.value_or("")),
        exclude_(asked.request.exclude.value_or("")),
        environment_(asked.environment),
        names_(asked.inventory, asked.host) {}

  Reading read() {
    num_gpus_ = read_num_gpus();
    std::vector<HostSlots> hosts;
    if (asked_.request.hostfile)
      hosts = read_deepspeed_hostfile(*asked_.request.hostfile, asked_.request.hostfile_name);
    else if (asked_.inventory.hosts.size() > 1)
      hosts = inventory_as_hostfile();
    several_ = !hosts.empty();
    consult_mask();
    if (num_gpus_ >= 0 && !(include_.empty() && exclude_.empty()))
      raise_python(GSEL_ERR_CONFLICT, "ValueError", "Cannot specify num_nodes/gpus with include/exclude", devices_,
                   {devices_.value, 1, false});
    if (!several_) hosts.push_back({local_name(), local_count(), 0});
    std::vector<Pool> pools = filtered(pools_of(hosts));
    slots_held_ = 0;
    if (num_gpus_ > 0)
      for (Pool& pool : pools) pool.slots = slots_up_to(num_gpus_);
    return launch(pools);
  }

 private:
  int64_t read_num_gpus() {
    if (!asked_.request.devices) return -1;
    devices_.value = *asked_.request.devices;
    const std::optional<int64_t> number = python_int(devices_.value);
    const Token whole{devices_.value, 1, false};
    if (!number)
      raise_python(
          GSEL_ERR_SYNTAX, "error",
          fmt::format("argument --num_gpus/--num_accelerators: invalid int value: '{}'", printable(devices_.value)),
          devices_, whole);
    trace_.add("deepspeed", devices_, whole,
               *number > 0 ? fmt::format("slots 0 to {} of each host", *number - 1) : "all",
               "--num_gpus takes the first slots of each host, unchecked against those that there are");
    return *number;
  }

  const char* mask() const {
    const TorchBackend* backend = torch_backend(asked_.inventory, asked_.host);
    return backend ? backend->mask : "CUDA_VISIBLE_DEVICES";
  }

  // Without other options a mask acts as --include. It is deleted in any case; with a hostfile it has no effect.
  void consult_mask() {
    const std::string* value = find_variable(asked_.environment, mask());
    if (!value || value->empty()) return;
    const Input input{mask(), *value};
    const Token whole{*value, 1, false};
    if (several_) {
      trace_.add("deepspeed", input, whole, "nothing", "with a hostfile the variable is not consulted");
      trace_.warn(fmt::format("deepspeed does not consult {} when there is a hostfile", input.shown()));
      return;
    }
    if (!include_.empty() || !exclude_.empty() || num_gpus_ > 0) {
      trace_.add("deepspeed", input, whole, "nothing", "ignored beside --include, --exclude and --num_gpus");
      trace_.warn(
          fmt::format("Detected VISIBLE_DEVICES={} but ignoring it because one or several of "
                      "--include/--exclude/--num_gpus/--num_nodes cl args were used",
                      printable(*value)));
    } else {
      include_ = fmt::format("{}:{}", kLocal, *value);
      include_is_mask_ = true;
      trace_.add("deepspeed", input, whole, fmt::format("--include={}", printable(include_)),
                 "the variable becomes --include and is deleted");
    }
    environment_.erase(mask());
  }

  // A real machine knows only itself; an inventory of several hosts is no real machine and replaces a hostfile.
  std::vector<HostSlots> inventory_as_hostfile() {
    std::vector<HostSlots> hosts;
    for (size_t i = 0; i < asked_.inventory.hosts.size(); ++i)
      hosts.push_back({asked_.inventory.hosts[i].name, count_devices(static_cast<int32_t>(i), {}), 0});
    trace_.warn(
        "there is no hostfile, and the inventory has several hosts: they are taken for one; on a machine of "
        "its own deepspeed then knows localhost alone");
    return hosts;
  }

  // The only host of an inventory may be given by its own name.
  std::string local_name() {
    const std::string& name = asked_.inventory.hosts[static_cast<size_t>(asked_.host)].name;
    for (const std::string* filter : {&include_, &exclude_})
      if (*filter == name || filter->starts_with(name + ":") || filter->starts_with(name + "@")) {
        trace_.warn(fmt::format("{} is taken for localhost, the only name that deepspeed knows without a hostfile",
                                printable(name)));
        return name;
      }
    return kLocal;
  }

  // Discards the trace: the driver is asked again for the chosen devices.
  int64_t count_devices(int32_t host, const Environment& environment) const {
    Trace unsaid;
    return static_cast<int64_t>(torch_devices(asked_.inventory, host, environment, unsaid).units.size());
  }

  int64_t local_count() const {
    const int64_t count = count_devices(asked_.host, environment_);
    if (count == 0)
      raise_python(GSEL_ERR_NO_DEVICES, "RuntimeError", "Unable to proceed, no GPU resources available", devices_,
                   {"", 1, false});
    return count;
  }

  std::vector<int64_t> slots_up_to(int64_t count) {
    const int64_t most = static_cast<int64_t>(asked_.inventory.devices.size()) + kMoreSlots;
    if (count > most - slots_held_)
      fail(GSEL_ERR_UNSUPPORTED, "{} slots are asked for; with this inventory gsel replays jobs of at most {}", count,
           most);
    slots_held_ += count;
    std::vector<int64_t> slots(static_cast<size_t>(count));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
    return slots;
  }

  std::vector<Pool> pools_of(const std::vector<HostSlots>& hosts) {
    std::vector<Pool> pools;
    for (const HostSlots& host : hosts) pools.push_back({host.name, slots_up_to(host.slots)});
    return pools;
  }

  std::vector<Pool> filtered(std::vector<Pool> pools) {
    try {
      return as_filtered(std::move(pools));
    } catch (const Error& error) {
      if (!include_is_mask_) throw;
      throw Error(error.code(), error.message()).at(in_mask(error.place()));
    }
  }

  // Maps a place in the --include made from the mask back to the mask.
  Place in_mask(Place place) const {
    place.file = mask();
    const auto before = static_cast<int32_t>(std::string_view(kLocal).size()) + 1;  // "localhost:"
    if (place.column <= before) place.token.erase(0, static_cast<size_t>(before + 1 - place.column));
    place.column = std::max(place.column - before, 1);
    return place;
  }

  std::vector<Pool> as_filtered(std::vector<Pool> pools) {
    if (!include_.empty() && !exclude_.empty())
      raise_python(GSEL_ERR_CONFLICT, "ValueError", "include_str and exclude_str are mutually exclusive.",
                   {"exclude", exclude_}, {exclude_, 1, false});
    const bool include = !include_.empty();
    if (include || !exclude_.empty()) {
      const DeepspeedFilter filter =
          read_deepspeed_filter({include ? "include" : "exclude", include ? include_ : exclude_}, trace_);
      std::map<std::string, const DeepspeedFilter::Node*> nodes;
      std::map<std::string, const Pool*> by_name;
      for (const Pool& pool : pools) by_name[pool.host] = &pool;
      for (const DeepspeedFilter::Node& node : filter.nodes) {
        check_node(filter.input, node, by_name);
        nodes[node.host.text] = &node;
      }
      for (Pool& pool : pools) {
        const auto node = nodes.find(pool.host);
        narrow(pool, node == nodes.end() ? nullptr : node->second, include);
      }
    }
    std::erase_if(pools, [](const Pool& pool) { return pool.slots.empty(); });
    return pools;
  }

  void check_node(const Input& input, const DeepspeedFilter::Node& node,
                  const std::map<std::string, const Pool*>& pools) {
    const auto pool = pools.find(node.host.text);
    if (pool == pools.end())
      raise_python(GSEL_ERR_UNKNOWN_HOST, "ValueError",
                   fmt::format("Hostname '{}' not found in hostfile", printable(node.host.text)), input, node.host);
    for (const auto& [slot, token] : node.slots)
      if (slot < 0 || slot >= static_cast<int64_t>(pool->second->slots.size()))
        raise_python(GSEL_ERR_OUT_OF_RANGE, "ValueError",
                     fmt::format("No slot '{}' specified on host '{}'", slot, printable(node.host.text)), input, token);
  }

  // node: what the filter says about the host; nullptr: nothing.
  static void narrow(Pool& pool, const DeepspeedFilter::Node* node, bool include) {
    if (!node) {
      if (include) pool.slots.clear();
      return;
    }
    if (node->slots.empty()) {
      if (!include) pool.slots.clear();
      return;
    }
    std::erase_if(pool.slots, [&](int64_t slot) { return node->slots.contains(slot) != include; });
  }

  Reading launch(const std::vector<Pool>& pools) {
    Reading reading;
    int64_t processes = 0;
    for (const Pool& pool : pools) processes += static_cast<int64_t>(pool.slots.size());
    for (size_t i = 0; i < pools.size(); ++i) {
      int32_t host = names_.find(pools[i].host);
      if (host < 0)
        host = add_unlisted(reading, pools[i]);
      else
        add_units(reading, pools[i], host);
      reading.environment_of_host[host] = environment_of(pools[i], i);
    }
    reading.processes = static_cast<int32_t>(processes);
    reading.hidden_by = "not among the slots that deepspeed leaves";
    reading.sets_environment = true;
    reading.environment = environment(pools.size(), processes);
    if (!reading.unlisted_hosts.empty())
      trace_.warn(fmt::format("the inventory has no host {}{}; slots are taken as the hostfile tells them",
                              printable(reading.unlisted_hosts[0]),
                              reading.unlisted_hosts.size() == 1
                                  ? ""
                                  : fmt::format(" and {} more of the hostfile", reading.unlisted_hosts.size() - 1)));
    if (pools.empty()) trace_.warn("deepspeed goes on with no slot at all; its launcher then fails with an IndexError");
    if (several_ && pools.size() == 1 && names_.find(pools[0].host) != asked_.host)
      trace_.warn(
          fmt::format("one host is left, {}: deepspeed starts the processes where it runs itself, unless "
                      "--force_multi is given",
                      printable(pools[0].host)));
    return reading;
  }

  void add_units(Reading& reading, const Pool& pool, int32_t host) {
    // Few variables are passed to other hosts; CUDA_DEVICE_ORDER is not.
    Environment environment = host == asked_.host ? environment_ : Environment();
    const TorchBackend* backend = torch_backend(asked_.inventory, host);
    std::vector<Unit> visible;
    if (backend) {
      environment[backend->mask] = fmt::format("{}", fmt::join(pool.slots, ","));
      visible = torch_devices(asked_.inventory, host, environment, trace_).units;
    }
    const std::vector<Unit> units = units_of_ranks(visible, static_cast<int64_t>(pool.slots.size()),
                                                   "deepspeed on " + printable(pool.host), trace_);
    reading.units.insert(reading.units.end(), units.begin(), units.end());
  }

  int32_t add_unlisted(Reading& reading, const Pool& pool) {
    const auto host = static_cast<int32_t>(asked_.inventory.hosts.size() + reading.unlisted_hosts.size());
    reading.unlisted_hosts.push_back(pool.host);
    for (int64_t slot : pool.slots) {
      reading.units.push_back(
          {static_cast<int32_t>(asked_.inventory.devices.size() + reading.unlisted.size()), -1, -1});
      Device device;
      device.host = host;
      device.index = static_cast<int32_t>(slot);
      device.vendor = "nvidia";
      device.name = "not in the inventory";
      reading.unlisted.push_back(std::move(device));
    }
    return host;
  }

  // The variables that launch.py sets for every process, without those of each host.
  EnvLines environment(size_t hosts, int64_t processes) const {
    EnvLines lines;
    if (!several_) lines.emplace_back("MASTER_ADDR", "127.0.0.1");
    lines.emplace_back("MASTER_PORT", "29500");
    lines.emplace_back("WORLD_SIZE", std::to_string(processes));
    lines.emplace_back("CROSS_SIZE", std::to_string(hosts));
    return lines;
  }

  EnvLines environment_of(const Pool& pool, size_t place) const {
    return {{mask(), fmt::format("{}", fmt::join(pool.slots, ","))},
            {"CROSS_RANK", std::to_string(place)},
            {"LOCAL_SIZE", std::to_string(pool.slots.size())}};
  }

  const Case& asked_;
  Trace& trace_;
  Input devices_{"devices", ""};
  int64_t num_gpus_ = -1;  // below 0: not given
  bool several_ = false;   // there is a hostfile, or an inventory that replaces it
  std::string include_, exclude_;
  bool include_is_mask_ = false;
  Environment environment_;  // of deepspeed, after the mask was handled
  HostNames names_;
  int64_t slots_held_ = 0;
};

}  // namespace

Reading read_deepspeed(const Case& asked, Trace& trace) {
  return Deepspeed(asked, trace).read();
}

}  // namespace gsel
