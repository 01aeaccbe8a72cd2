// fake/cuda/words.cc: words of memory that streams write and wait for; see machine.h. A wait that is met by what a
// stream of this process wrote comes behind that write; a word that holds anything else was written by another process
// or by the host. Since these may wait for a word, a thread runs writes of words that nobody here waits for.
#include <unistd.h>

#include <thread>

#include "cuda_api.h"
#include "machine.h"

namespace fake_cuda {
namespace {

constexpr useconds_t kLatestUs = 100;  // until a write that is enqueued is looked after
constexpr int kMostSteps = 64;         // of one stream at a time

uint32_t* word_at(uintptr_t at) {
  return static_cast<uint32_t*>(Machine::get().here(reinterpret_cast<void*>(at)));
}

}  // namespace

bool Word::is_met(uint32_t found) const {
  switch (condition) {
    case kWaitEqual:
      return found == value;
    case kWaitAnd:
      return (found & value) != 0;
    default:
      return static_cast<int32_t>(found - value) >= 0;
  }
}

// Of memory that is gone: the wait runs, and finds that.
bool Machine::is_met(const Word& word) const {
  return !find(word.at) || word.is_met(__atomic_load_n(word_at(word.at), __ATOMIC_ACQUIRE));
}

bool Machine::is_same(const Word& a, const Word& b) const {
  if (a.at == b.at) return true;
  const Allocation *of_a = find(a.at), *of_b = find(b.at);
  return of_a && of_b && of_a->memory == of_b->memory && of_a->place(a.at) == of_b->place(b.at);
}

void Machine::write(const Word& word, const Clock& clock) {
  const Allocation* a = find(word.at);
  if (!a) {
    ended_by = kIllegalAddress;
    return;
  }
  a->memory->words[a->place(word.at)] = {word.value, clock};
  __atomic_store_n(word_at(word.at), word.value, __ATOMIC_RELEASE);
}

// What comes before the work behind a wait that has been met.
void Machine::learn(Stream& stream, const Operation& operation) {
  if (operation.awaits && operation.mark) stream.learned.merge(operation.mark->learned);
  if (!operation.awaits_word.at) return;
  const Allocation* a = find(operation.awaits_word.at);
  if (!a) {
    ended_by = kIllegalAddress;
    return;
  }
  const auto written = a->memory->words.find(a->place(operation.awaits_word.at));
  if (written != a->memory->words.end() &&
      written->second.value == __atomic_load_n(word_at(operation.awaits_word.at), __ATOMIC_ACQUIRE))
    stream.learned.merge(written->second.clock);
}

void Machine::begin_late(Stream& stream, Operation& operation) {
  if (!operation.is_late) return;
  operation.is_late = false;
  Clock clock = operation.clock;
  clock.merge(stream.learned);
  check_order(stream, operation, clock);
}

// The stream whose head must run next for some stream of this process to write what meets the wait.
Stream* Machine::who_writes(const Word& word, Seen& seen) {
  for (auto& [key, stream] : streams_)
    for (const Operation& operation : stream.queue) {
      const Word& written = operation.writes_word;
      if (!written.at || !is_same(written, word) || !word.is_met(written.value)) continue;
      if (Stream* found = who_lets_go_on(stream, seen)) return found;
    }
  return nullptr;
}

bool Machine::has_writes() const {
  return !ended_by && std::ranges::any_of(streams_, [](const auto& entry) { return entry.second.writes > 0; });
}

void Machine::run_writes() {
  for (auto& [key, stream] : streams_)
    for (int step = 0; step < kMostSteps && stream.writes > 0 && !ended_by && nudge(&stream); ++step) {
    }
}

// The thread is of this process alone: one that is forked from it has none.
void Machine::keep_writing() {
  static const bool is_begun = [this] {
    std::thread([this] {
      for (;;) {
        {
          std::unique_lock lock(mutex_);
          written_.wait(lock, [this] { return has_writes(); });
        }
        usleep(kLatestUs);
        const std::lock_guard lock(mutex_);
        run_writes();
      }
    }).detach();
    return true;
  }();
  (void)is_begun;
  written_.notify_one();
}

}  // namespace fake_cuda
