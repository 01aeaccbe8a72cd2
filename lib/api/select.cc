// api/select.cc: gsel/select.h.
#include <gsel/select.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "api/guard.h"
#include "api/init_struct.h"
#include "base/options.h"
#include "base/text.h"
#include "select/resolve.h"

// Texts are made with the object, so that queries from any thread only read.
struct gsel_inventory {
  explicit gsel_inventory(gsel::Inventory inventory)
      : impl(std::move(inventory)), json(inventory_json(impl)), text(inventory_text(impl)) {}
  gsel::Inventory impl;
  std::string json, text;
};

struct gsel_selection {
  // Variables of one answer, lent out as an array.
  struct Variables {
    explicit Variables(gsel::EnvLines from) : lines(std::move(from)) {
      for (const auto& [name, value] : lines) array.push_back({gsel::borrow(name), gsel::borrow(value)});
    }
    gsel::EnvLines lines;
    std::vector<gsel_env_var> array;
  };

  explicit gsel_selection(gsel::Selection selection)
      : impl(std::move(selection)), json(selection_json(impl)), text(selection_text(impl)) {
    const auto ranks = static_cast<int32_t>(impl.order.size());
    for (int32_t rank = -1; rank < ranks; ++rank) env.emplace_back(selection_env(impl, rank));
  }

  gsel::Selection impl;
  std::string json, text;
  std::vector<Variables> env;  // [1 + local rank]
};

namespace gsel {
namespace {

void describe(const Device& device, int32_t index, gsel_device_info* info) {
  gsel_device_info out = GSEL_DEVICE_INFO_INIT;
  out.index = index;
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
  write_struct(info, out, "gsel_device_info");
}

void check_index(int32_t index, size_t count, const char* what) {
  if (index < 0 || static_cast<size_t>(index) >= count)
    fail(GSEL_ERR_ARG, "{} is {}, there are {}", what, index, count);
}

// What the rules read of this process's environment.
Environment own_environment() {
  Environment out;
  for (const Rules& row : rules())
    for (const char* name : row.variables)
      if (const char* value = std::getenv(name)) out[name] = value;
  return out;
}

Environment given_environment(const gsel_resolve_request& request) {
  Environment out;
  if (!request.env && request.n_env) fail(GSEL_ERR_ARG, "env is NULL, n_env is {}", request.n_env);
  for (size_t i = 0; i < request.n_env; ++i) {
    const std::string name = text(request.env[i].name);
    if (name.empty()) fail(GSEL_ERR_ARG, "env[{}] has no name", i);
    if (!out.emplace(name, text(request.env[i].value)).second) fail(GSEL_ERR_ARG, "env names {} twice", name);
  }
  return out;
}

Environment environment_of(const gsel_resolve_request& request) {
  if (request.flags & ~GSEL_RESOLVE_NO_ENV)
    fail(GSEL_ERR_ARG, "flags is {:#x}, known are {:#x}", request.flags, GSEL_RESOLVE_NO_ENV);
  if (request.flags & GSEL_RESOLVE_NO_ENV) return {};
  return request.env || request.n_env ? given_environment(request) : own_environment();
}

}  // namespace
}  // namespace gsel

using gsel::guard;
using gsel::required;

extern "C" {

void gsel_device_info_init(gsel_device_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}
void gsel_resolve_request_init(gsel_resolve_request* request, size_t struct_size) {
  gsel::init_struct(request, struct_size);
}
void gsel_candidate_init(gsel_candidate* candidate, size_t struct_size) {
  gsel::init_struct(candidate, struct_size);
}

gsel_status gsel_inventory_detect(gsel_inventory** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] { required(out, "out") = new gsel_inventory(gsel::detect_inventory()); });
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
  return inventory ? static_cast<int32_t>(inventory->impl.devices.size()) : 0;
}

gsel_status gsel_inventory_device(const gsel_inventory* inventory, int32_t index, gsel_device_info* info,
                                  gsel_error** err) {
  return guard(err, [&] {
    const auto& devices = required(inventory, "inventory").impl.devices;
    gsel::check_index(index, devices.size(), "index");
    gsel::describe(devices[index], index, info);
  });
}

gsel_str gsel_inventory_json(const gsel_inventory* inventory) {
  return inventory ? gsel::borrow(inventory->json) : gsel_str{"", 0};
}
gsel_str gsel_inventory_text(const gsel_inventory* inventory) {
  return inventory ? gsel::borrow(inventory->text) : gsel_str{"", 0};
}

void gsel_inventory_free(gsel_inventory* inventory) {
  delete inventory;
}

gsel_status gsel_resolve(const gsel_resolve_request* request, gsel_selection** out, gsel_error** err) {
  if (out) *out = nullptr;
  return guard(err, [&] {
    required(out, "out");
    const gsel_resolve_request full = gsel::read_struct(request, "gsel_resolve_request");
    gsel::Request asked;
    if (gsel::given(full.devices)) asked.devices = gsel::text(full.devices);
    if (gsel::given(full.accelerator)) asked.accelerator = gsel::text(full.accelerator);
    const gsel::Environment environment = gsel::environment_of(full);
    *out = new gsel_selection(
        gsel::resolve(full.inventory ? full.inventory->impl : gsel::detect_inventory(), environment, asked));
  });
}

int32_t gsel_selection_device_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.order.size()) : 0;
}

gsel_status gsel_selection_device(const gsel_selection* selection, int32_t position, gsel_device_info* info,
                                  gsel_error** err) {
  return guard(err, [&] {
    const gsel::Selection& impl = required(selection, "selection").impl;
    gsel::check_index(position, impl.order.size(), "position");
    gsel::describe(impl.device(position), impl.order[position], info);
  });
}

int32_t gsel_selection_candidate_count(const gsel_selection* selection) {
  return selection ? static_cast<int32_t>(selection->impl.verdicts.size()) : 0;
}

gsel_status gsel_selection_candidate(const gsel_selection* selection, int32_t i, gsel_candidate* candidate,
                                     gsel_error** err) {
  return guard(err, [&] {
    const auto& verdicts = required(selection, "selection").impl.verdicts;
    gsel::check_index(i, verdicts.size(), "i");
    gsel_candidate out = GSEL_CANDIDATE_INIT;
    out.index = i;
    out.position = verdicts[i].position;
    out.reason = gsel::borrow(verdicts[i].reason);
    gsel::write_struct(candidate, out, "gsel_candidate");
  });
}

gsel_status gsel_selection_env(const gsel_selection* selection, int32_t local_rank, const gsel_env_var** out,
                               size_t* n_out, gsel_error** err) {
  if (out) *out = nullptr;
  if (n_out) *n_out = 0;
  return guard(err, [&] {
    required(out, "out");
    required(n_out, "n_out");
    const auto& env = required(selection, "selection").env;
    const bool one = selection->impl.order.size() == 1;
    const int64_t place = int64_t{local_rank} + 1;
    if (place < 0 || (!one && place >= static_cast<int64_t>(env.size())))
      gsel::selection_env(selection->impl, local_rank);  // throws with the reason
    const auto& variables = env[one ? 0 : static_cast<size_t>(place)].array;
    *out = variables.data();
    *n_out = variables.size();
  });
}

gsel_str gsel_selection_json(const gsel_selection* selection) {
  return selection ? gsel::borrow(selection->json) : gsel_str{"", 0};
}
gsel_str gsel_selection_text(const gsel_selection* selection) {
  return selection ? gsel::borrow(selection->text) : gsel_str{"", 0};
}

void gsel_selection_free(gsel_selection* selection) {
  delete selection;
}

}  // extern "C"
