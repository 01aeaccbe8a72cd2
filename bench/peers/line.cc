// line.cc: see line.h.
#include "line.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace bench {
namespace {

constexpr uint64_t kRounds = 2000;

struct alignas(128) Flag {
  std::atomic<uint64_t> value{0};
};

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Gives way now and then: the other side may be on this very core until it has moved.
void await(const Flag& flag, uint64_t value) {
  for (uint64_t looks = 1; flag.value.load(std::memory_order_acquire) < value; ++looks)
    if (looks % 100'000 == 0) sched_yield();
}

double once() {
  Flag ping, pong;
  std::thread other([&] {
    pin(1);
    for (uint64_t i = 1; i <= kRounds; ++i) {
      await(ping, i);
      pong.value.store(i, std::memory_order_release);
    }
  });
  ping.value.store(1, std::memory_order_release);
  await(pong, 1);
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 2; i <= kRounds; ++i) {
    ping.value.store(i, std::memory_order_release);
    await(pong, i);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  other.join();
  return took.count() / static_cast<double>(kRounds - 1);
}

}  // namespace

double line_round_trip() {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return 0;
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(0);
  std::array<double, 5> runs{};
  for (double& run : runs) run = once();
  sched_setaffinity(0, sizeof before, &before);
  std::sort(runs.begin(), runs.end());
  return runs[2];
}

}  // namespace bench
