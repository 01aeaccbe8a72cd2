// job_devices.cc: see job_devices.h.
#include "job_devices.h"

#include <algorithm>
#include <cstdio>

#include "colour.h"

namespace gsel::cli {

JobDevices::JobDevices(const DeviceWish& wish, const gsel_config* config, int64_t ranks) {
  const std::string accelerator = text(gsel_config_get(config, gsel_str_from("select.accelerator")));
  const std::string in_file = text(gsel_config_get(config, gsel_str_from("select.devices")));
  const std::string order = text(gsel_config_get(config, gsel_str_from("select.order")));
  const bool asked = wish.devices.has_value() || !in_file.empty() || accelerator != "auto" || wish.reserve;
  if (!asked) return;
  const std::string devices = wish.devices ? *wish.devices : in_file;
  const auto inventory = read_inventory(wish.inventory);
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  resolve_options.inventory = inventory.get();
  if (wish.devices || !devices.empty()) resolve_options.devices = borrow(devices);
  resolve_options.accelerator = borrow(accelerator);
  if (order != "visible") resolve_options.order = borrow(order);
  resolve_options.flags = GSEL_RESOLVE_PER_RANK;
  wish.reserve ? hold(resolve_options) : look(resolve_options);
  for (int32_t i = 0; i < gsel_selection_warning_count(selection_); ++i)
    std::fprintf(stderr, "%s%s\n", warning_prefix().c_str(), text(gsel_selection_warning(selection_, i)).c_str());
  check_one_host();
  shared_ = wish.share;
  if (!shared_) check_sharing(ranks);
}

void JobDevices::add(int32_t rank, Environment& environment) const {
  if (!selection_) return;
  if (shared_ && device_count() > 0) rank %= device_count();
  const gsel_env_var* variables = nullptr;
  size_t count = 0;
  gsel_error* error = nullptr;
  check(gsel_selection_env(selection_, rank, &variables, &count, &error), &error);
  for (size_t i = 0; i < count; ++i) environment[text(variables[i].name)] = text(variables[i].value);
  environment.erase("GSEL_DEVICE");
  if (!shared_) environment["GSEL_DEVICE"] = identity(std::min(rank, device_count() - 1));
}

void JobDevices::look(const gsel_resolve_options& options) {
  gsel_selection* made = nullptr;
  gsel_error* error = nullptr;
  check(gsel_resolve(&options, &made, &error), &error);
  owned_.reset(made);
  selection_ = made;
}

void JobDevices::hold(const gsel_resolve_options& options) {
  gsel_reservation* made = nullptr;
  gsel_error* error = nullptr;
  check(gsel_reserve(&options, nullptr, &made, &error), &error);
  held_.reset(made);
  selection_ = gsel_reservation_selection(made);
}

// Empty for a CPU, which all ranks can share.
std::string JobDevices::identity(int32_t position) const {
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  if (position < 0 || gsel_selection_device(selection_, position, &info, nullptr)) return {};
  if (text(info.vendor) == "cpu") return {};
  std::string name = text(info.partition >= 0 ? info.partition_uuid : info.uuid.len ? info.uuid : info.pci);
  return info.tile >= 0 ? name + "." + std::to_string(info.tile) : name;
}

std::string JobDevices::host(int32_t position) const {
  gsel_device_info info = GSEL_DEVICE_INFO_INIT;
  return gsel_selection_device(selection_, position, &info, nullptr) ? "" : text(info.host);
}

void JobDevices::check_one_host() const {
  for (int32_t i = 1; i < device_count(); ++i)
    if (host(i) != host(0))
      refuse(GSEL_ERR_UNSUPPORTED, "devices of hosts " + host(0) + " and " + host(i) +
                                       " are selected, and gsel run starts ranks on one; add & host:" + host(0));
}

void JobDevices::check_sharing(int64_t ranks) const {
  if (ranks < 2 || device_count() != 1 || identity(0).empty()) return;
  refuse(GSEL_ERR_DUPLICATE, std::to_string(ranks) + " ranks would compute on one device, " + identity(0) +
                                 "; select " + std::to_string(ranks) + ", or allow it by --share-devices");
}

}  // namespace gsel::cli
