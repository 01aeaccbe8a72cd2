// model/state.h: everything the machine is in at one moment, as bytes, so that equal states are equal memory. Does not
// know what instructions do to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "machine.h"

namespace model {

constexpr uint8_t kAwake = 255;

struct View {
  uint8_t stamp[kAtomics];
  uint8_t clock[kThreads];
  void join(const View& other) {
    for (int i = 0; i < kAtomics; ++i) stamp[i] = std::max(stamp[i], other.stamp[i]);
    for (int i = 0; i < kThreads; ++i) clock[i] = std::max(clock[i], other.clock[i]);
  }
};

struct Message {
  uint8_t value;
  View view;
};

struct Place {
  uint8_t first, count;  // stamp of message[0]; older ones can no longer be read
  Message message[kMessages];
};

struct Data {
  uint8_t value, writer, written;  // clock of the writer
  uint8_t reads[kThreads];
};

struct ThreadState {
  uint8_t pc, asleep, fence_owed, barrier_open, reg[kRegisters];
  View now, acquired, released;  // acquired: to be taken over by a fence; released: what relaxed stores carry
};

struct State {
  Place place[kAtomics];
  Data data[kData];
  ThreadState thread[kThreads];
  uint8_t sc[kAtomics];    // stamps that seq_cst accesses and fences have seen
  uint8_t lock[kAtomics];  // that holders of the kernel's futex lock have seen
};

struct Hash128 {
  uint64_t low, high;
  bool operator==(const Hash128&) const = default;
};
struct Low {
  size_t operator()(const Hash128& hash) const { return hash.low; }
};

// Not the memory of messages that are gone: the same state whatever they were.
inline Hash128 hash_of(const State& state) {
  Hash128 hash{0x243f6a8885a308d3, 0x13198a2e03707344};
  const auto mix = [&](const void* bytes, size_t n) {
    const auto* at = static_cast<const char*>(bytes);
    for (; n > 0;) {
      uint64_t word = 0;
      const size_t some = std::min(n, sizeof word);
      std::memcpy(&word, at, some);
      hash.low = (hash.low ^ word) * 0x9e3779b97f4a7c15u;
      hash.low ^= hash.low >> 29;
      hash.high = (hash.high + word + 1) * 0xbf58476d1ce4e5b9u;
      hash.high ^= hash.high >> 32;
      at += some, n -= some;
    }
  };
  for (const Place& place : state.place) mix(&place, 2 + place.count * sizeof(Message));
  mix(state.data, sizeof(State) - offsetof(State, data));
  return hash;
}

inline void join_stamps(uint8_t* into, const uint8_t* from) {
  for (int i = 0; i < kAtomics; ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace model
