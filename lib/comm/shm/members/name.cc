// comm/shm/members/name.cc: see membership.h.
#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

#include "base/os.h"
#include "comm/shm/members/membership.h"

namespace gsel::shm {
namespace {

// Arenas by address, with the number of this process's ranks in each. Guarded by os::process_mutex. Never destroyed:
// threads may outlive main.
std::map<const void*, int>& arenas() {
  static auto* the_arenas = new std::map<const void*, int>;
  return *the_arenas;
}

}  // namespace

std::string founded_name(std::string_view given) {
  static std::atomic<int> founded{0};
  if (!given.empty()) return std::string(given);
  const int number = ++founded;
  return number == 1 ? "world" : fmt::format("world-{}", number);
}

std::string derived_name(const char* origin, std::string_view made) {
  std::string name = fmt::format("{}.{}", origin, made);
  if (name.size() >= kNameBytes) name = "..." + name.substr(name.size() - (kNameBytes - 4));
  return name;
}

void enter_communicator(const Arena& arena) {
  const std::lock_guard lock(os::process_mutex());
  ++arenas()[arena.base()];
}

void leave_communicator(const Arena& arena) noexcept {
  const std::lock_guard lock(os::process_mutex());
  const auto found = arenas().find(arena.base());
  if (found != arenas().end() && --found->second == 0) arenas().erase(found);
}

bool several_communicators() {
  const std::lock_guard lock(os::process_mutex());
  return arenas().size() > 1;
}

}  // namespace gsel::shm
