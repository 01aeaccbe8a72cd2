// plugin/search.cc: see search.h. The folder next to libgsel is found from where libgsel was loaded, not from where it
// was configured to be, so that an installation can be moved.
#include "plugin/search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace gsel {
namespace {

constexpr const char* kSubfolder = "/gsel/plugins-1";
constexpr char kOurs = 0;  // an address inside this library

DIR* open_folder(const std::string& path) {
  for (;;)
    if (DIR* folder = opendir(path.c_str()); folder || errno != EINTR) return folder;
}

// The file of libgsel, and the folder of the plugins next to it.
struct Home {
  std::string file;
  std::string folder;
};

Home home() {
  Dl_info info{};
  link_map* map = nullptr;
  const bool known = dladdr1(&kOurs, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  if (known && map && map->l_name && map->l_name[0]) {
    const std::string file = resolved(map->l_name);
    return {file, folder_of(file) + kSubfolder};
  }
  const std::string program = resolved("/proc/self/exe");  // linked into the program: uses bin next to lib
  return {program, folder_of(folder_of(program)) + "/lib" + kSubfolder};
}

PluginFolder own_folder() {
  PluginFolder folder;
  try {
    const Home ours = home();
    folder.path = ours.folder;
    struct stat info {};
    folder.owner = stat(ours.file.c_str(), &info) == 0 ? info.st_uid : geteuid();
  } catch (const Error& e) {
    folder.refusal = e.message();
  }
  return folder;
}

std::vector<PluginFolder> listed_folders() {
  std::vector<PluginFolder> folders;
  const char* variable = secure_getenv("GSEL_PLUGIN_PATH");
  std::string_view rest = variable ? variable : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    PluginFolder folder{std::string(rest.substr(0, end)), {}, geteuid()};
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (folder.path.empty()) continue;
    if (folder.path[0] != '/')
      folder.refusal = "is not an absolute path; GSEL_PLUGIN_PATH takes absolute folders joined by ':'";
    folders.push_back(std::move(folder));
  }
  return folders;
}

// Resolves the folder and checks whether it is trusted.
void look_at(PluginFolder& folder) {
  if (!folder.refusal.empty()) return;
  try {
    const std::string path = resolved(folder.path);
    folder.refusal = distrust_of_folder(path, folder.owner);
    if (folder.refusal.empty()) folder.path = path;
  } catch (const Error& e) {
    folder.refusal = e.message();
  }
}

}  // namespace

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), std::free);
  if (!real) fail(GSEL_ERR_IO, "cannot be resolved: {}", errno_text(errno));
  return real.get();
}

std::vector<PluginFolder> plugin_folders() {
  std::vector<PluginFolder> all = listed_folders(), once;
  all.push_back(own_folder());
  std::set<std::string> seen;
  for (PluginFolder& folder : all) {
    look_at(folder);
    if (!folder.refusal.empty() && &folder != &all.back())
      warn_about_variable("GSEL_PLUGIN_PATH", folder.path, folder.refusal);
    if (seen.insert(folder.path).second) once.push_back(std::move(folder));
  }
  return once;
}

std::vector<std::string> modules_in(const std::string& folder) {
  std::vector<std::string> paths;
  // Not std::filesystem, which terminates the process when there is no memory.
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(open_folder(folder), closedir);
  int code = entries ? 0 : errno;
  while (entries) {
    errno = 0;
    const dirent* entry = readdir(entries.get());
    code = errno;
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name.size() > 3 && name.ends_with(".so")) paths.push_back(fmt::format("{}/{}", folder, name));
  }
  if (code) fail(GSEL_ERR_IO, "cannot be listed: {}", errno_text(code));
  std::sort(paths.begin(), paths.end());
  return paths;
}

// ---- trust ----------------------------------------------------------------------------------------------------------
// Checks every folder of the resolved path, since whoever can write to one could replace the file.

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
