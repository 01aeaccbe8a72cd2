// select/reserve/lock_folder.h: named locks between all processes of a machine, which the kernel releases when their
// holder dies, as files in one shared folder. A file without a lock is stale and has no meaning. Does not know what the
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

}  // namespace gsel
