// comm/shm/members/membership.cc: see membership.h.
#include "comm/shm/members/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "base/os.h"

namespace gsel::shm {
namespace {

constexpr std::string_view kWhich = " (communicator ";

}  // namespace

Membership::Membership(const MemberPlace& place)
    : rank_(place.rank),
      world_size_(place.arena->layout().world_size),
      arena_(place.arena),
      family_(place.family),
      name_(arena_->header().name),
      numbering_(place.numbering),
      tuning_(arena_->header().tuning) {
  find_places();
  for (int32_t q = 0; q < world_size_; ++q)
    one_process_ = one_process_ && member(q).process == family_->member(family_->rank()).process;
}

void Membership::find_places() {
  header_ = &arena_->header();
  blocks_ = &arena_->rank(0);
  mine_ = &arena_->rank(rank_);
  ring_ = &arena_->call(rank_, 0);
}

std::shared_ptr<Arena> Membership::arena_now() const {
  const std::lock_guard lock(arena_mutex_);
  return arena_;
}

std::shared_ptr<Arena> Membership::exchange_arena(std::shared_ptr<Arena> next) {
  const std::lock_guard lock(arena_mutex_);
  arena_.swap(next);
  find_places();
  return next;
}

std::string_view without_which(std::string_view text) {
  const size_t at = text.rfind(kWhich);
  const bool ends_so = at != text.npos && text.find(')', at) == text.size() - 1;
  return ends_so ? text.substr(0, at) : text;
}

std::string Membership::which() const {
  if (!several_communicators()) return {};
  const auto numbering = this->numbering();
  if (numbering && !numbering->name.empty())
    return fmt::format("{}{}, by the ranks of {})", kWhich, name_, numbering->name);
  return fmt::format("{}{})", kWhich, name_);
}

std::shared_ptr<const Numbering> Membership::numbering() const {
  const std::lock_guard lock(numbering_mutex_);
  return numbering_;
}

void Membership::show_as(std::span<const int32_t> shown) {
  auto numbering = std::make_shared<Numbering>();
  numbering->of_family.assign(static_cast<size_t>(family_->size()), -1);
  for (int32_t q = 0; q < world_size_; ++q) {
    const int32_t in_text = shown[static_cast<size_t>(q)];
    numbering->of_family[static_cast<size_t>(block(q).family_rank)] = in_text;
    block(q).shown_rank.store(in_text, std::memory_order_relaxed);
  }
  const std::lock_guard lock(numbering_mutex_);
  numbering_ = std::move(numbering);
}

std::string Membership::named(int32_t rank) const {
  const int32_t joined = family_->shown(block(rank).family_rank), in_text = shown(rank);
  if (joined == in_text) return fmt::format("rank {}", in_text);
  return fmt::format("rank {} (rank {} of {})", in_text, joined, family_->name);
}

std::string Membership::who(int32_t rank) const {
  const int32_t joined = family_->shown(block(rank).family_rank), in_text = shown(rank);
  const ArenaHeader& at = header();
  const bool is_part = at.part_of.load(std::memory_order_acquire) != 0;
  const std::string host = is_part ? fmt::format(" on {}", at.part_host) : std::string();
  if (joined == in_text) return fmt::format("rank {}{} (pid {})", in_text, host, member(rank).pid);
  return fmt::format("rank {}{} (pid {}, rank {} of {})", in_text, host, member(rank).pid, joined, family_->name);
}

std::string Membership::name_in_family(int32_t family_rank, bool with_pid) const {
  for (int32_t q = 0; q < world_size_; ++q)
    if (block(q).family_rank == family_rank) return with_pid ? who(q) : named(q);
  const int32_t in_text = shown_of_family(family_rank);
  std::string name = in_text >= 0 ? fmt::format("rank {}", in_text)
                                  : fmt::format("rank {} of {}", family_->shown(family_rank), family_->name);
  if (with_pid) name += fmt::format(" (pid {})", family_->member(family_rank).pid);
  return name;
}

int32_t Membership::shown_of_family(int32_t family_rank) const {
  const auto numbering = this->numbering();
  return numbering ? numbering->of_family[static_cast<size_t>(family_rank)] : -1;
}

int32_t Membership::family_of_shown(int32_t in_text) const {
  if (const auto numbering = this->numbering()) {
    const auto found = std::ranges::find(numbering->of_family, in_text);
    return found == numbering->of_family.end() ? -1 : static_cast<int32_t>(found - numbering->of_family.begin());
  }
  for (int32_t q = 0; q < world_size_; ++q)
    if (shown(q) == in_text) return block(q).family_rank;
  return -1;
}

std::shared_ptr<const Numbering> Membership::own_numbering() const {
  if (auto numbering = this->numbering()) return numbering;
  auto numbering = std::make_shared<Numbering>();
  numbering->name = name_;
  numbering->of_family.assign(static_cast<size_t>(family_->size()), -1);
  for (int32_t q = 0; q < world_size_; ++q) numbering->of_family[static_cast<size_t>(block(q).family_rank)] = shown(q);
  return numbering;
}

// ---- names of communicators -----------------------------------------------------------------------------------------

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
