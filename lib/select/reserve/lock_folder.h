// select/reserve/lock_folder.h: named locks that all processes of a machine see and that the kernel releases when their
// holder dies, on files of one shared folder. A file without a lock is stale and means nothing. Does not know what the
// names stand for.
#pragma once

#include <optional>
#include <string>

#include "base/os.h"

namespace gsel {

class LockFolder {
 public:
  // GSEL_RESERVE_FOLDER, else /run/lock/gsel, else /tmp/gsel-lock.
  static std::string default_path();

  // Opens the folder, making it when it is not there. GSEL_ERR_IO, GSEL_ERR_PERMISSION.
  explicit LockFolder(const std::string& path);
  // The same, but nothing is made; false when there is no such folder.
  static std::optional<LockFolder> open_existing(const std::string& path);

  // While it is held, no other process takes or gives back locks here. GSEL_ERR_BUSY after `seconds`.
  os::Fd hold_all(double seconds) const;

  // Takes the lock, writing this process's number into its file. None: another holds it.
  std::optional<os::Fd> take(const std::string& name) const;
  // Gives the lock back and removes its file; to be called with hold_all, or the file stays.
  void give_back(const std::string& name, os::Fd lock, bool remove) const noexcept;
  // The process that holds the lock: 0 nobody, -1 somebody who has not said who.
  int32_t holder(const std::string& name) const;

 private:
  LockFolder(std::string path, os::Fd folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  os::Fd open_lock(const std::string& name, bool make) const;

  std::string path_;
  os::Fd folder_;
};

}  // namespace gsel
