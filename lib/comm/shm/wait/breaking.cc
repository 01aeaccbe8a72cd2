// comm/shm/wait/breaking.cc: see breaking.h.
#include "comm/shm/wait/breaking.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace gsel::shm {
namespace {

constexpr int64_t kWritingNs = 100'000'000;
constexpr uint32_t kWriting = 1, kReadable = 2;

}  // namespace

void Breaking::look_at_all() const {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const int32_t family_rank = at_.block(q).family_rank;
    if (at_.family().ended(family_rank)) on_member_exit(family_rank);
  }
}

// A rank that left before its process ended did not die; a rank that waits for it reports that it left.
void Breaking::on_member_exit(int32_t family_rank) const noexcept {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const RankBlock& block = at_.block(q);
    if (block.family_rank != family_rank || block.left.load(std::memory_order_acquire) != 0) continue;
    try {
      mark(GSEL_ERR_PEER, q,
           fmt::format("{} {} while {} {}", at_.who(q), kEnded, at_.named(at_.rank()),
                       recorder_.activity_of(at_.rank())));
    } catch (...) {
      mark(GSEL_ERR_PEER, q, {});  // no memory for the text
    }
  }
}

void Breaking::abort(const char* reason, int32_t about) noexcept {
  if (!at_.is_own_process()) return;
  const std::lock_guard lock(at_.arena_mutex());
  try {
    const char* given = reason && *reason ? reason : "no reason given";
    const std::string text = fmt::format("{} aborted the communicator: {}", at_.named(at_.rank()), given);
    if (about < 0)
      mark(GSEL_ERR_ABORTED, at_.rank(), text);
    else
      write(GSEL_ERR_ABORTED, about, at_.family_of_shown(about), text);
  } catch (...) {
    mark(GSEL_ERR_ABORTED, at_.rank(), {});  // no memory for the text
  }
}

void Breaking::mark(gsel_status code, int32_t about, const std::string& text) const noexcept {
  const bool somebody = about >= 0 && about < at_.world_size();
  write(code, somebody ? at_.shown(about) : about, somebody ? at_.block(about).family_rank : -1, text);
}

void Breaking::write(gsel_status code, int32_t shown, int32_t family_rank, const std::string& text,
                     const HeldElsewhere* elsewhere) const noexcept {
  if (!at_.is_own_process()) return;
  ArenaHeader& header = at_.header();
  uint32_t none = 0;
  if (!header.broken.compare_exchange_strong(none, kWriting, std::memory_order_seq_cst)) return;
  header.broken_code = code;
  header.broken_rank = shown;
  header.broken_family = family_rank;
  header.broken_ns = os::now_ns();
  if (elsewhere) write_record(header.broken_elsewhere, *elsewhere);
  const std::string_view told = without_which(text);  // throw_broken appends the suffix
  const size_t length = std::min(told.size(), kTextBytes - 1);
  std::memcpy(header.broken_text, told.data(), length);
  header.broken_text[length] = '\0';
  header.broken.store(kReadable, std::memory_order_seq_cst);
  wake_all();
}

void Breaking::wake_all() const noexcept {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    wake(at_.block(q));
    wake_listener(at_.block(q));
  }
}

void Breaking::wake_listener(RankBlock& block) noexcept {
  block.wakeups.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake_all(block.wakeups);
}

void Breaking::wake(RankBlock& block) noexcept {
  block.wake_word.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake_all(block.wake_word);
}

void Breaking::break_with(gsel_status code, int32_t about, const std::string& text) const {
  mark(code, about, text);
  throw_broken();
}

void Breaking::throw_broken() const {
  const ArenaHeader& header = at_.header();
  const int64_t patience = os::now_ns() + kWritingNs;
  while (header.broken.load(std::memory_order_acquire) != kReadable) {
    if (os::now_ns() > patience) fail(GSEL_ERR_PEER, "a rank died while it reported why the communicator is broken");
    sched_yield();
  }
  throw Error(header.broken_code, header.broken_text + at_.which()).about_rank(header.broken_rank);
}

bool Breaking::await(int64_t nanoseconds) const {
  const std::atomic<uint32_t>& word = at_.mine().wake_word;
  const uint32_t before = word.load(std::memory_order_seq_cst);
  if (at_.header().broken.load(std::memory_order_seq_cst) == 0) os::futex_wait(word, before, nanoseconds);
  return at_.is_broken();
}

void Breaking::leave(const Arena& arena) const noexcept {
  RankBlock& own = arena.rank(at_.rank());
  own.left.store(1, std::memory_order_seq_cst);
  wake(own);
  own.gone.store(1, std::memory_order_release);
}

}  // namespace gsel::shm
