// comm/shm/tuning/tuning.cc: see tuning.h. Uses the file of GSEL_TUNING, else the user's own; each is read once. A file
// that cannot be used is reported and ignored, since it only affects speed.
#include "comm/shm/tuning/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/os.h"
#include "comm/shm/tuning/tuning_file.h"

namespace gsel::shm {
namespace {

using Worlds = std::vector<TunedWorld>;

constexpr const char* kVariable = "GSEL_TUNING";
constexpr size_t kMostFileBytes = size_t{128} << 10;  // above the parser's limit, whose error is more precise

const char* variable(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

// Empty: none.
std::string path_in_force() {
  if (const char* file = secure_getenv(kVariable)) return file;
  std::string path;
  if (const char* folder = variable("XDG_CONFIG_HOME"))
    path = std::string(folder) + "/gsel/tuning.toml";
  else if (const char* home = variable("HOME"))
    path = std::string(home) + "/.config/gsel/tuning.toml";
  return access(path.c_str(), F_OK) == 0 ? path : std::string();
}

Worlds read_worlds(const std::string& path) {
  try {
    return parse_tuning(read_file("tuning file", path, kMostFileBytes), path, cpu_model());
  } catch (const Error& e) {
    if (const char* named = variable(kVariable))
      warn_about_variable(kVariable, named, fmt::format("tuning is not used: {}; gsel tune makes one", e.what()));
    else
      log(GSEL_LOG_WARN, "comm", "tuning is not used: {}", e.what());
    return {};
  }
}

std::shared_ptr<const Worlds> worlds_in_force() {
  static auto* known = new std::map<std::string, std::shared_ptr<const Worlds>>;
  const std::string path = path_in_force();
  if (path.empty()) return std::make_shared<Worlds>();
  {
    std::lock_guard lock(os::process_mutex());
    const auto found = known->find(path);
    if (found != known->end()) return found->second;
  }
  auto worlds = std::make_shared<const Worlds>(read_worlds(path));
  std::lock_guard lock(os::process_mutex());
  return known->emplace(path, std::move(worlds)).first->second;
}

}  // namespace

// Falls back to the next smaller number of ranks that was measured, else to the smallest.
Tuning tuning_for(int32_t ranks) {
  const auto worlds = worlds_in_force();
  if (worlds->empty()) return {};
  const auto above = std::ranges::upper_bound(*worlds, ranks, {}, &TunedWorld::ranks);
  return (above == worlds->begin() ? above : std::prev(above))->tuning;
}

double predicted_seconds(int32_t ranks, gsel_collective_kind kind, uint64_t bytes) {
  const auto worlds = worlds_in_force();
  const auto world = std::ranges::find(*worlds, ranks, &TunedWorld::ranks);
  if (world == worlds->end() || kind < 0 || kind >= GSEL_COLLECTIVE_KINDS) return 0;
  return interpolated_seconds(world->timings[static_cast<size_t>(kind)], bytes);
}

}  // namespace gsel::shm
