// api/select.cc: gsel/select.h.
#include <gsel/select.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "api/handles.h"
#include "base/file.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "select/compat/compat.h"
#include "select/reserve/reserve.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

constexpr uint32_t kFlags = GSEL_RESOLVE_NO_ENV | GSEL_RESOLVE_PER_RANK;
constexpr size_t kMaxHostfileBytes = 16 << 20;

Environment own_environment() {
  Environment out;
  for (char** line = environ; line && *line; ++line)
    if (const char* equals = std::strchr(*line, '='))
      out.emplace(std::string(*line, static_cast<size_t>(equals - *line)), equals + 1);
  return out;
}

Environment given_environment(const gsel_resolve_options& options) {
  Environment out;
  if (!options.env && options.n_env) fail(GSEL_ERR_ARG, "env is NULL, n_env is {}", options.n_env);
  for (size_t i = 0; i < options.n_env; ++i) {
    const std::string name = text(options.env[i].name);
    if (name.empty()) fail(GSEL_ERR_ARG, "env[{}] has no name", i);
    if (!out.emplace(name, text(options.env[i].value)).second)
      fail(GSEL_ERR_ARG, "env names {} twice", printable(name));
  }
  return out;
}

std::optional<std::string> optional_text(gsel_str s) {
  return given(s) ? std::optional(text(s)) : std::nullopt;
}

// Vulkan's drivers are started in programs that ask for them alone.
bool wants_vulkan() {
  const char* value = secure_getenv("GSEL_VULKAN");
  return value && std::string_view(value) == "1";
}

void read_hostfile(const gsel_resolve_options& full, Request& request) {
  request.hostfile_name = given(full.hostfile) ? text(full.hostfile) : "hostfile";
  if (given(full.hostfile_text)) {
    request.hostfile = text(full.hostfile_text);
    return;
  }
  if (!given(full.hostfile)) return;
  const std::string path = absolute_path("hostfile", request.hostfile_name);
  // DeepSpeed treats a missing hostfile as none.
  if (request.compat == "deepspeed" && access(path.c_str(), F_OK) != 0) return;
  request.hostfile = read_file("hostfile", path, kMaxHostfileBytes);
  request.hostfile_name = path;
}

void describe(const Inventory& inventory, const Unit& unit, gsel_device_info* info) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  gsel_device_info out = GSEL_DEVICE_INFO_INIT;
  out.index = device.index;
  out.numa = device.numa;
  out.vendor = borrow(device.vendor);
  out.name = borrow(device.name);
  out.uuid = borrow(device.uuid);
  out.pci = borrow(device.pci);
  out.memory_bytes = device.memory_bytes;
  out.free_bytes = device.free_bytes;
  out.capability_major = device.capability_major;
  out.capability_minor = device.capability_minor;
  out.compute_units = device.compute_units;
  out.process_count = device.process_count;
  out.host = borrow(inventory.host_of(device).name);
  out.architecture = borrow(device.architecture);
  out.clock_khz = device.clock_khz;
  out.partition = unit.partition;
  out.tile = unit.tile;
  if (unit.partition >= 0) {
    out.partition_uuid = borrow(uuid_of(inventory, unit));
    out.memory_bytes = device.partitions[static_cast<size_t>(unit.partition)].memory_bytes;
    out.free_bytes = 0;
  }
  out.partition_count = static_cast<int32_t>(device.partitions.size());
  out.tiles = device.tiles;
  out.compute_mode = static_cast<int32_t>(device.compute_mode);
  out.integrated = device.integrated;
  out.accessible = device.accessible;
  out.reserved_by = device.reserved_by;
  write_struct(info, out, "gsel_device_info");
}

}  // namespace

FullRequest::FullRequest(const gsel_resolve_options* given_request) {
  const gsel_resolve_options full = read_struct(given_request, "gsel_resolve_options");
  check_flags(full.flags, kFlags, "gsel_resolve_options.flags");
  request.devices = optional_text(full.devices);
  request.accelerator = optional_text(full.accelerator);
  request.compat = optional_text(full.compat);
  request.order = optional_text(full.order);
  request.include = optional_text(full.include);
  request.exclude = optional_text(full.exclude);
  request.per_rank = full.flags & GSEL_RESOLVE_PER_RANK;
  read_hostfile(full, request);

  const bool env_given = full.env || full.n_env;
  const bool own = !env_given && !(full.flags & GSEL_RESOLVE_NO_ENV);
  if (own) environment = own_environment();
  if (env_given) environment = given_environment(full);
  inventory =
      full.inventory
          ? full.inventory->impl
          : std::make_shared<const Inventory>(detect_with_reservations(request.compat == "vulkan" || wants_vulkan()));
  own_ = own && !full.inventory;
}

void FullRequest::check(const Selection& selection) const {
  const auto is_nvidia = [&](const Unit& unit) {
    return selection.inventory->devices[static_cast<size_t>(unit.device)].vendor == "nvidia";
  };
  if (own_ && std::any_of(selection.units.begin(), selection.units.end(), is_nvidia))
    check_driver_state(*inventory, environment);
}

}  // namespace gsel

using gsel::guard;
using gsel::required;

extern "C" {

// ---- inventories ---------------------------------------------------------------------------------------------------

void gsel_device_info_init(gsel_device_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}
void gsel_partition_info_init(gsel_partition_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}
void gsel_interconnect_info_init(gsel_interconnect_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}

gsel_status gsel_inventory_detect(gsel_inventory** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] {
    required(out, "out");
    *out = new gsel_inventory(gsel::detect_with_reservations(gsel::wants_vulkan()));
  });
}

gsel_status gsel_inventory_load(gsel_str path, gsel_inventory** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] {
    required(out, "out");
    if (!gsel::given(path)) gsel::fail(GSEL_ERR_ARG, "path is NULL");
    *out = new gsel_inventory(gsel::load_inventory(gsel::text(path)));
  });
}

gsel_status gsel_inventory_parse(gsel_str text, gsel_str name, gsel_inventory** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] {
    required(out, "out");
    if (!gsel::given(text)) gsel::fail(GSEL_ERR_ARG, "text is NULL");
    *out = new gsel_inventory(gsel::parse_inventory(gsel::view(text), gsel::text(name)));
  });
}

int32_t gsel_inventory_device_count(const gsel_inventory* inventory) {
  return inventory ? static_cast<int32_t>(inventory->impl->devices.size()) : 0;
}

gsel_status gsel_inventory_device(const gsel_inventory* inventory, int32_t index, gsel_device_info* info,
                                  gsel_error** err) {
  return guard(err, [&] {
    const gsel::Inventory& impl = *required(inventory, "inventory").impl;
    gsel::check_index(index, impl.devices.size(), "index");
    gsel::describe(impl, {index, -1, -1}, info);
  });
}

int32_t gsel_inventory_host_count(const gsel_inventory* inventory) {
  return inventory ? static_cast<int32_t>(inventory->impl->hosts.size()) : 0;
}

gsel_str gsel_inventory_host_name(const gsel_inventory* inventory, int32_t host) {
  if (!inventory || host < 0 || static_cast<size_t>(host) >= inventory->impl->hosts.size()) return {"", 0};
  return gsel::borrow(inventory->impl->hosts[static_cast<size_t>(host)].name);
}

gsel_status gsel_inventory_partition(const gsel_inventory* inventory, int32_t device, int32_t partition,
                                     gsel_partition_info* info, gsel_error** err) {
  return guard(err, [&] {
    const auto& devices = required(inventory, "inventory").impl->devices;
    gsel::check_index(device, devices.size(), "device");
    const auto& partitions = devices[static_cast<size_t>(device)].partitions;
    gsel::check_index(partition, partitions.size(), "partition");
    const gsel::Partition& of = partitions[static_cast<size_t>(partition)];
    gsel_partition_info out = GSEL_PARTITION_INFO_INIT;
    out.uuid = gsel::borrow(of.uuid);
    out.memory_bytes = of.memory_bytes;
    out.gi = of.gi;
    out.ci = of.ci;
    gsel::write_struct(info, out, "gsel_partition_info");
  });
}

int32_t gsel_inventory_interconnect_count(const gsel_inventory* inventory, int32_t host) {
  if (!inventory || host < 0 || static_cast<size_t>(host) >= inventory->impl->hosts.size()) return 0;
  return static_cast<int32_t>(inventory->impl->hosts[static_cast<size_t>(host)].links.size());
}

gsel_status gsel_inventory_interconnect(const gsel_inventory* inventory, int32_t host, int32_t link,
                                        gsel_interconnect_info* info, gsel_error** err) {
  return guard(err, [&] {
    const auto& hosts = required(inventory, "inventory").impl->hosts;
    gsel::check_index(host, hosts.size(), "host");
    const auto& links = hosts[static_cast<size_t>(host)].links;
    gsel::check_index(link, links.size(), "link");
    const gsel::Link& of = links[static_cast<size_t>(link)];
    gsel_interconnect_info out = GSEL_INTERCONNECT_INFO_INIT;
    out.a = of.a;
    out.b = of.b;
    out.kind = gsel::borrow(of.kind);
    out.bytes_per_second = of.bytes_per_second;
    out.latency_s = of.latency_s;
    gsel::write_struct(info, out, "gsel_interconnect_info");
  });
}

gsel_str gsel_inventory_json(const gsel_inventory* inventory) {
  return gsel::query(gsel_str{"", 0}, [&] {
    return required(inventory, "inventory").json.get([&] { return gsel::inventory_json(*inventory->impl); });
  });
}
gsel_str gsel_inventory_text(const gsel_inventory* inventory) {
  return gsel::query(gsel_str{"", 0}, [&] {
    return required(inventory, "inventory").text.get([&] { return gsel::inventory_text(*inventory->impl); });
  });
}

void gsel_inventory_free(gsel_inventory* inventory) {
  delete inventory;
}

// ---- resolving -----------------------------------------------------------------------------------------------------

void gsel_resolve_options_init(gsel_resolve_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_candidate_init(gsel_candidate* candidate, size_t struct_size) {
  gsel::init_struct(candidate, struct_size);
}
void gsel_decision_init(gsel_decision* step, size_t struct_size) {
  gsel::init_struct(step, struct_size);
}

int32_t gsel_compat_count(void) {
  return static_cast<int32_t>(gsel::systems().size());
}
gsel_str gsel_compat_name(int32_t i) {
  return i < 0 || i >= gsel_compat_count() ? gsel_str{"", 0}
                                           : gsel_str_from(gsel::systems()[static_cast<size_t>(i)].name);
}
gsel_str gsel_compat_summary(int32_t i) {
  return i < 0 || i >= gsel_compat_count() ? gsel_str{"", 0}
                                           : gsel_str_from(gsel::systems()[static_cast<size_t>(i)].summary);
}

gsel_status gsel_resolve(const gsel_resolve_options* options, gsel_selection** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] {
    required(out, "out");
    const gsel::FullRequest full(options);
    gsel::Selection selection = gsel::resolve(full.inventory, full.environment, full.request);
    full.check(selection);
    *out = new gsel_selection(std::move(selection));
  });
}

int32_t gsel_selection_device_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.units.size()) : 0;
}

gsel_status gsel_selection_device(const gsel_selection* selection, int32_t position, gsel_device_info* info,
                                  gsel_error** err) {
  return guard(err, [&] {
    const gsel::Selection& impl = required(selection, "selection").impl;
    gsel::check_index(position, impl.units.size(), "position");
    gsel::describe(*impl.inventory, impl.units[static_cast<size_t>(position)], info);
  });
}

int32_t gsel_selection_candidate_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.candidates.size()) : 0;
}

gsel_status gsel_selection_candidate(const gsel_selection* selection, int32_t i, gsel_candidate* candidate,
                                     gsel_error** err) {
  return guard(err, [&] {
    const auto& candidates = required(selection, "selection").impl.candidates;
    gsel::check_index(i, candidates.size(), "i");
    const gsel::Verdict& of = candidates[static_cast<size_t>(i)];
    gsel_candidate out = GSEL_CANDIDATE_INIT;
    out.index = of.unit.device;
    out.position = of.position;
    out.reason = gsel::borrow(of.reason);
    out.partition = of.unit.partition;
    gsel::write_struct(candidate, out, "gsel_candidate");
  });
}

int32_t gsel_selection_decision_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.trace.steps.size()) : 0;
}

gsel_status gsel_selection_decision(const gsel_selection* selection, int32_t i, gsel_decision* step, gsel_error** err) {
  return guard(err, [&] {
    const auto& steps = required(selection, "selection").impl.trace.steps;
    gsel::check_index(i, steps.size(), "i");
    const gsel::Step& of = steps[static_cast<size_t>(i)];
    gsel_decision out = GSEL_DECISION_INIT;
    out.layer = gsel::borrow(of.layer);
    out.input = gsel::borrow(of.input);
    out.token = gsel::borrow(of.token);
    out.became = gsel::borrow(of.became);
    out.rule = gsel::borrow(of.rule);
    out.column = of.column;
    gsel::write_struct(step, out, "gsel_decision");
  });
}

int32_t gsel_selection_warning_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.trace.warnings.size()) : 0;
}
gsel_str gsel_selection_warning(const gsel_selection* selection, int32_t i) {
  if (i < 0 || i >= gsel_selection_warning_count(selection)) return {"", 0};
  return gsel::borrow(selection->impl.trace.warnings[static_cast<size_t>(i)]);
}

int32_t gsel_selection_process_count(const gsel_selection* selection) {
  return selection ? selection->impl.processes : -1;
}

static gsel_status lend_variables(const gsel_selection* selection, int32_t host, int32_t local_rank,
                                  const gsel_env_var** out, size_t* n_out, gsel_error** err) {
  if (out) *out = nullptr;
  if (n_out) *n_out = 0;
  return guard(err, [&] {
    required(out, "out");
    required(n_out, "n_out");
    const auto& array = required(selection, "selection").variables(host, local_rank).array;
    *out = array.data();
    *n_out = array.size();
  });
}

gsel_status gsel_selection_env(const gsel_selection* selection, int32_t local_rank, const gsel_env_var** out,
                               size_t* n_out, gsel_error** err) {
  const bool some = selection && !selection->impl.units.empty();
  return lend_variables(selection, some ? selection->impl.device(0).host : 0, local_rank, out, n_out, err);
}

gsel_status gsel_selection_host_env(const gsel_selection* selection, gsel_str host, int32_t local_rank,
                                    const gsel_env_var** out, size_t* n_out, gsel_error** err) {
  if (out) *out = nullptr;
  if (n_out) *n_out = 0;
  int32_t found = -1;
  const gsel_status status = guard(err, [&] {
    const auto& hosts = required(selection, "selection").impl.inventory->hosts;
    for (size_t h = 0; h < hosts.size(); ++h)
      if (hosts[h].name == gsel::view(host)) found = static_cast<int32_t>(h);
    if (found < 0) gsel::fail(GSEL_ERR_UNKNOWN_HOST, "the inventory has no host {}", gsel::in_quotes(gsel::view(host)));
  });
  return status ? status : lend_variables(selection, found, local_rank, out, n_out, err);
}

gsel_str gsel_selection_json(const gsel_selection* selection) {
  return gsel::query(gsel_str{"", 0}, [&] {
    return required(selection, "selection").json.get([&] { return gsel::selection_json(selection->impl); });
  });
}
gsel_str gsel_selection_text(const gsel_selection* selection) {
  return gsel::query(gsel_str{"", 0}, [&] {
    return required(selection, "selection").text.get([&] { return gsel::selection_text(selection->impl); });
  });
}

void gsel_selection_free(gsel_selection* selection) {
  delete selection;
}

}  // extern "C"
