// comm/shm/wait/elsewhere.cc: see elsewhere.h.
#include "comm/shm/wait/elsewhere.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/os.h"
#include "comm/shm/members/membership.h"

namespace gsel::shm {
namespace {

// A family of this process. teller: the communicator of another family that last published a wait to this one.
struct Entry {
  const Family* family;
  int communicators;
  uint64_t fork_generation;
  const Elsewhere* teller;
};

std::atomic<int> the_count{0};

// Guarded by os::process_mutex. Never destroyed: threads may outlive main.
std::vector<Entry>& families() {
  static auto* the_families = new std::vector<Entry>;
  return *the_families;
}

uint64_t this_thread() {
  return (os::process_token() ^ static_cast<uint64_t>(syscall(SYS_gettid)) * 0x9e3779b97f4a7c15u) | 1;
}

int ranks_here(const Family& family, uint64_t process) {
  int ranks = 0;
  for (int32_t f = 0; f < family.size(); ++f) ranks += family.member(f).process == process;
  return ranks;
}

template <size_t n>
void put_words(std::atomic<uint64_t> (&words)[n], const std::string& text) {
  for (size_t i = 0; i < n; ++i) {
    char bytes[sizeof(uint64_t)] = {};
    if (text.size() > i * sizeof bytes)
      std::memcpy(bytes, text.data() + i * sizeof bytes, std::min(sizeof bytes, text.size() - i * sizeof bytes));
    if (i == n - 1) bytes[sizeof bytes - 1] = '\0';
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    words[i].store(word, std::memory_order_relaxed);
  }
}

template <size_t n>
std::string words_text(const std::atomic<uint64_t> (&words)[n]) {
  char text[n * sizeof(uint64_t)];
  for (size_t i = 0; i < n; ++i) {
    const uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(text + i * sizeof word, &word, sizeof word);
  }
  return {text, strnlen(text, sizeof text)};
}

}  // namespace

void write_record(ElsewhereRecord& record, const HeldElsewhere& held) {
  const uint64_t version = record.version.load(std::memory_order_relaxed);
  record.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.person.store(held.person, std::memory_order_relaxed);
  record.process.store(held.process, std::memory_order_relaxed);
  record.ended_ns.store(held.ended_ns, std::memory_order_relaxed);
  put_words(record.who, held.who);
  put_words(record.where, held.where);
  record.version.store(version + 2, std::memory_order_release);
}

std::optional<HeldElsewhere> read_record(const ElsewhereRecord& record) {
  const uint64_t version = record.version.load(std::memory_order_acquire);
  HeldElsewhere held;
  held.person = record.person.load(std::memory_order_relaxed);
  held.process = record.process.load(std::memory_order_relaxed);
  held.ended_ns = record.ended_ns.load(std::memory_order_relaxed);
  held.who = words_text(record.who);
  held.where = words_text(record.where);
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool whole = version % 2 == 0 && record.version.load(std::memory_order_relaxed) == version;
  if (!whole || held.process == 0) return {};
  return held;
}

Elsewhere::Elsewhere(Family& family) : family_(family) {
  if (!family.memory()) return;
  uint64_t nobody = 0;
  joined_block(family, family.rank()).person.compare_exchange_strong(nobody, this_thread(), std::memory_order_acq_rel);
  const std::lock_guard lock(os::process_mutex());
  const auto found = std::ranges::find(families(), &family_, &Entry::family);
  if (found != families().end()) {
    ++found->communicators;
    return;
  }
  families().push_back({&family_, 1, os::fork_generation(), nullptr});
  the_count.store(static_cast<int>(families().size()), std::memory_order_relaxed);
}

Elsewhere::~Elsewhere() {
  end(false);
  const std::lock_guard lock(os::process_mutex());
  const auto found = std::ranges::find(families(), &family_, &Entry::family);
  if (found != families().end() && --found->communicators == 0) families().erase(found);
  the_count.store(static_cast<int>(families().size()), std::memory_order_relaxed);
}

bool Elsewhere::anywhere() noexcept {
  return the_count.load(std::memory_order_relaxed) > 1;
}

uint64_t Elsewhere::person(int32_t family_rank) const {
  return joined_block(family_, family_rank).person.load(std::memory_order_acquire);
}

void Elsewhere::tell(const HeldElsewhere& held) {
  const uint64_t own = this_thread();
  const std::lock_guard lock(os::process_mutex());
  for (Entry& entry : families()) {
    if (entry.family == &family_ || entry.fork_generation != os::fork_generation()) continue;
    RankBlock& there = joined_block(*entry.family, entry.family->rank());
    if (there.person.load(std::memory_order_relaxed) != own) continue;
    write_record(there.elsewhere, held);
    entry.teller = this;
    state_ = State::waits;
  }
}

void Elsewhere::end(bool failed) noexcept {
  if (state_ == State::nothing) return;
  state_ = failed ? State::failed : State::nothing;
  const std::lock_guard lock(os::process_mutex());
  for (Entry& entry : families()) {
    if (entry.teller != this || entry.fork_generation != os::fork_generation()) continue;
    ElsewhereRecord& record = joined_block(*entry.family, entry.family->rank()).elsewhere;
    if (failed) {
      record.ended_ns.store(os::now_ns(), std::memory_order_release);
      continue;
    }
    record.process.store(0, std::memory_order_release);
    entry.teller = nullptr;
  }
}

std::optional<HeldElsewhere> Elsewhere::told_by(int32_t family_rank) const {
  return read_record(joined_block(family_, family_rank).elsewhere);
}

int32_t Elsewhere::find(uint64_t person, uint64_t process) const {
  int32_t one = -1;
  for (int32_t f = 0; f < family_.size(); ++f) {
    if (this->person(f) == person) return f;
    if (family_.member(f).process == process) one = f;
  }
  return ranks_here(family_, process) == 1 ? one : -1;
}

}  // namespace gsel::shm
