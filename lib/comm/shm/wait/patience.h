// comm/shm/wait/patience.h: how long a waiting rank polls before it yields its processor, and then before it sleeps,
// and how long one sleep is.
#pragma once

#include <cstdint>

namespace gsel::shm {

constexpr int64_t kYieldNs = 60'000;
constexpr int kCrowdedYields = 32;  // at the most with more ranks than cores: giving way to a rank of another
                                    // scheduling group is in vain, and whoever sleeps leaves the processor to it
constexpr int64_t kSleepNs = 1'000'000;
constexpr int64_t kWatchedSleepNs = 20'000'000;  // where a thread breaks the communicator when a member dies
constexpr int64_t kSleepBesideNs = 100'000;      // in a collective, with messages under way that wake nobody there

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace gsel::shm
