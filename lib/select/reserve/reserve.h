// select/reserve/reserve.h: devices selected and locked in one step, so that two processes that select at the same time
// never get the same device. Does not know who asks.
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
  // and never held. Tiles of a card are held with their card. GSEL_ERR_BUSY when too few are free, and what resolve
  // throws.
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

// Sets Device::reserved_by where a reservation in the folder holds the device or one of its parts.
void mark_reserved(Inventory& inventory, const LockFolder& folder);
// This machine, with what is reserved in the default folder.
Inventory detect_with_reservations();

}  // namespace gsel
