// job_devices.h: the devices of one host's ranks, as requested from `gsel run`. Does not know the program of the ranks.
#pragma once

#include <optional>
#include <string>

#include "client.h"
#include "job.h"

namespace gsel::cli {

struct DeviceWish {
  std::optional<std::string> devices;  // not given: as in the config
  std::string inventory;               // a file; empty: this machine
  bool reserve = false, share = false;
};

// The devices of the job; without a request there are none, and the ranks see the same devices as this process.
class JobDevices {
 public:
  JobDevices(const DeviceWish& wish, const gsel_config* config, int64_t ranks);

  // Adds the variables with which rank `rank` of this host sees its device, and the name of the device for other ranks.
  void add(int32_t rank, Environment& environment) const;

 private:
  void look(const gsel_resolve_options& options);
  void hold(const gsel_resolve_options& options);
  int32_t device_count() const { return gsel_selection_device_count(selection_); }
  std::string identity(int32_t position) const;
  std::string host(int32_t position) const;
  void check_one_host() const;
  void check_sharing(int64_t ranks) const;

  Handle<gsel_selection> owned_;
  Handle<gsel_reservation> held_;
  const gsel_selection* selection_ = nullptr;
  bool shared_ = false;  // several ranks may take turns on one device
};

}  // namespace gsel::cli
