// base/available.cc: see available.h. The host offers MemAvailable and free swap. Each control group from this process
// upwards offers its limit less the memory in use, where file pages that can be dropped do not count.
#include "base/available.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

namespace gsel::os {
namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";

std::optional<uint64_t> first_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;  // "max" is no number
}

// The number after `name` at the beginning of a line.
uint64_t named_number(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name)) return std::strtoull(line.c_str() + name.size(), nullptr, 10);
  return 0;
}

uint64_t host_memory() {
  constexpr uint64_t kKilobyte = 1024;
  const uint64_t available = named_number("/proc/meminfo", "MemAvailable:");
  return available == 0 ? UINT64_MAX : (available + named_number("/proc/meminfo", "SwapFree:")) * kKilobyte;
}

uint64_t group_memory(const std::string& folder) {
  const auto limit = first_number(folder + "/memory.max"), used = first_number(folder + "/memory.current");
  if (!limit || !used) return UINT64_MAX;
  const std::string details = folder + "/memory.stat";
  const uint64_t files = named_number(details, "inactive_file ") + named_number(details, "active_file ");
  const uint64_t held = *used - std::min(*used, files);
  return *limit - std::min(*limit, held);
}

std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.substr(3);
  return "/";
}

}  // namespace

uint64_t available_memory() {
  uint64_t least = host_memory();
  for (std::string group = own_group();; group.resize(group.rfind('/'))) {
    least = std::min(least, group_memory(kGroups + group));
    if (group.empty() || group.find('/') == std::string::npos) return least;
  }
}

}  // namespace gsel::os
