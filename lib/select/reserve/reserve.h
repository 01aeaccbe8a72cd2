// select/reserve/reserve.h: selects and locks devices in one step, so that two processes that select at the same time
// never get the same device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "select/reserve/lock_folder.h"
#include "select/resolve.h"

namespace gsel {

// Holds its devices until it is destroyed or the process ends.
class Reservation {
 public:
  struct Options {
    std::string folder;  // empty: LockFolder::default_path()
    double wait_s = 0;   // how long to wait for devices to become free
  };

  // Resolves among the devices that no process uses and no reservation holds, and holds the result. The CPU is shared
  // and never held. A tile is held together with its card. GSEL_ERR_BUSY when too few devices are free, and the errors
  // of resolve.
  Reservation(const std::shared_ptr<const Inventory>& inventory, const Environment& environment, Request request,
              const Options& options);
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  Selection take_selection() { return std::move(selection_); }

 private:
  struct Held {
    std::string name;
    os::Fd lock;
  };
  bool try_to_hold(const Inventory& inventory, const Environment& environment, const Request& request, bool last);

  LockFolder folder_;
  uint64_t generation_;
  std::vector<Held> held_;
  Selection selection_;
};

// Sets Device::reserved_by for devices that are reserved in the folder, as a whole or in part.
void mark_reserved(Inventory& inventory, const LockFolder& folder);
// The inventory of this machine with the reservations of the default folder.
Inventory detect_with_reservations();

}  // namespace gsel
