// select/reserve/reserve.h: selects and locks devices in one step, so that two processes that select at the same time
// never get the same device. The locks are files in one shared folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"
#include "select/resolve.h"

namespace gsel {

// Named locks between all processes of a machine, which the kernel releases when their holder dies. A file without a
// lock is stale and has no meaning.
class LockFolder {
 public:
  // GSEL_RESERVE_FOLDER, else /run/lock/gsel, else /tmp/gsel-lock.
  static std::string default_path();

  // Opens the folder, and creates it if missing. GSEL_ERR_IO, GSEL_ERR_PERMISSION.
  explicit LockFolder(const std::string& path);
  // The same without creating anything; nullopt when there is no such folder.
  static std::optional<LockFolder> open_existing(const std::string& path);

  // While the lock is held, no other process takes or releases locks here. GSEL_ERR_BUSY after `seconds`.
  os::Fd hold_all(double seconds) const;

  // Takes the lock and writes this process's id into its file. nullopt: another process holds it.
  std::optional<os::Fd> take(const std::string& name) const;
  // Releases the lock and, with `remove`, deletes its file; deleting requires hold_all.
  void give_back(const std::string& name, os::Fd lock, bool remove) const noexcept;
  // The process that holds the lock: 0: none, -1: unknown process.
  int32_t holder(const std::string& name) const;

 private:
  LockFolder(std::string path, os::Fd folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  os::Fd open_lock(const std::string& name, bool make) const;

  std::string path_;
  os::Fd folder_;
};

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
// The inventory of this machine with the reservations of the default folder. vulkan: also Vulkan's devices.
Inventory detect_with_reservations(bool vulkan);

}  // namespace gsel
