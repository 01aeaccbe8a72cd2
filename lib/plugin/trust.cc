// plugin/trust.cc: see trust.h. Checks every folder of the resolved path, since whoever can write to one could replace
// the file.
#include "plugin/trust.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "base/error.h"

namespace gsel {
namespace {

enum class Role { file, holder, ancestor };

std::string noun(Role role, const std::string& path) {
  switch (role) {
    case Role::file:
      return "the file";
    case Role::holder:
      return "the folder " + path;
    default:
      return "the folder " + path + " above it";
  }
}

std::string distrust_of_one(const std::string& path, Role role, uid_t owner) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return fmt::format("{}: {}", noun(role, path), errno_text(errno));
  if (role == Role::file ? !S_ISREG(info.st_mode) : !S_ISDIR(info.st_mode))
    return fmt::format("{} is not a {}", noun(role, path), role == Role::file ? "regular file" : "folder");
  const std::set<uid_t> owners{0, geteuid(), owner};
  if (!owners.contains(info.st_uid))
    return fmt::format("{} belongs to uid {}; expected uid {}", noun(role, path), info.st_uid,
                       fmt::join(owners, " or "));
  const bool sticky_of_root = (info.st_mode & S_ISVTX) != 0 && info.st_uid == 0;
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(role == Role::ancestor && sticky_of_root))
    return fmt::format("{} is writable by group or others (mode {:04o}); run chmod go-w {}", noun(role, path),
                       info.st_mode & 07777, path);
  return {};
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
}

}  // namespace

std::string distrust_of_folder(const std::string& path, uid_t owner) {
  std::string reason = distrust_of_one(path, Role::holder, owner);
  for (std::string above = path; reason.empty() && above != "/";) {
    above = parent_of(above);
    reason = distrust_of_one(above, Role::ancestor, owner);
  }
  return reason;
}

std::string distrust_of_file(const std::string& path, uid_t owner) {
  const std::string reason = distrust_of_one(path, Role::file, owner);
  return reason.empty() ? distrust_of_folder(parent_of(path), owner) : reason;
}

}  // namespace gsel
