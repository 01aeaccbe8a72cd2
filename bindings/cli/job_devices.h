// job_devices.h: the devices of the ranks of one host, as `gsel run` was asked for them. Does not know: what the ranks
// run.
#pragma once

#include <optional>
#include <string>

#include "client.h"
#include "job.h"

namespace gsel::cli {

struct DeviceWish {
  std::optional<std::string> devices;  // not given: as the config says
  std::string inventory;               // a file; empty: this machine
  bool reserve = false, share = false;
};

// The devices of the job: nothing when none were asked for, and the ranks see what we see.
class JobDevices {
 public:
  JobDevices(const DeviceWish& wish, const gsel_config* config, int64_t ranks);

  // Adds what rank `rank` of this host is to see, and by which name its device is known to the others.
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
  bool shared_ = false;  // several ranks may compute on one device, in turn
};

}  // namespace gsel::cli
