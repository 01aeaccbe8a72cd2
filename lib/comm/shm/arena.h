// comm/shm/arena.h: the memory that ranks share and where everything stands in it. Refuses to know the protocols.
// It is a memfd: without a name, gone with its last user, reserved up front so that lack of memory is an error at
// joining and never a signal later. Ranks that are threads of one process share one mapping.
#pragma once

#include <gsel/plugin.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/os.h"

namespace gsel::shm {

constexpr int32_t kMaxRanks = 256;
constexpr size_t kLineBytes = 48;     // payload that rides in the header line
constexpr size_t kSmallBytes = 4096;  // payload that rides beside it
constexpr int kSlots = 2;             // of a channel
constexpr size_t kTextBytes = 480;

// What every rank posts first in every collective: payload before sequence, so that who sees the sequence sees all.
struct alignas(64) HeaderLine {
  std::atomic<uint64_t> sequence;
  uint64_t fingerprint;
  unsigned char payload[kLineBytes];
};
static_assert(sizeof(HeaderLine) == 64);

// A call in exact fields, for messages; read while its owner may write, hence atomic.
struct CallRecord {
  std::atomic<uint64_t> kind_dtype_op_root;
  std::atomic<uint64_t> count;
};

struct alignas(128) RankBlock {
  HeaderLine line[2];  // by parity of the call's sequence

  // Progress within large calls, in chunks counted over the life of the communicator.
  alignas(128) std::atomic<uint64_t> staged;
  std::atomic<uint64_t> reduced;
  std::atomic<uint64_t> copied;

  alignas(128) CallRecord posted[2];    // by parity, the collective of that line
  CallRecord latest;                    // the latest call of any kind
  std::atomic<uint64_t> latest_number;  // 2n while in call n, 2n + 1 behind it

  // What the rank waits for, once it waits long: flag as offset in the arena, its wanted value, whose flag it is.
  std::atomic<uint64_t> awaited_flag;
  std::atomic<uint64_t> awaited_value;
  std::atomic<int32_t> awaited_rank;  // -1: nobody
  std::atomic<uint32_t> left;
  int32_t pid;

  alignas(128) std::atomic<uint32_t> sleepers;  // ranks asleep until this one makes progress
  std::atomic<uint32_t> wake_word;
  std::atomic<int32_t> processor;  // where it last waited, + 1
};

// From one rank to another; data of the slots stands elsewhere.
struct alignas(128) Channel {
  std::atomic<uint64_t> sent;  // slots
  struct alignas(32) Message {
    uint64_t count;
    int32_t dtype;
  } message[kSlots];  // of the slot's message
  alignas(128) std::atomic<uint64_t> taken;
};

struct ArenaHeader {
  std::atomic<uint64_t> magic;
  uint32_t version;
  int32_t world_size;
  uint64_t total_bytes;
  int32_t cores;  // processors that the ranks may use together

  // The failure that broke the communicator, first one wins: 0 none, 1 being written, 2 readable.
  alignas(128) std::atomic<uint32_t> broken;
  int32_t broken_code;
  int32_t broken_rank;
  char broken_text[kTextBytes];
};

// Where things stand for so many ranks; the same on every rank.
struct Layout {
  explicit Layout(int32_t ranks);
  int32_t world_size;
  size_t staging_bytes;  // of one of a rank's two buffers
  size_t slot_bytes;     // of one slot of a channel
  size_t ranks_at, small_at, staging_at, channels_at, slots_at, total_bytes;
};

class Arena {
 public:
  static std::shared_ptr<Arena> alone();                            // a world of one, on the heap
  static os::Fd create(const Layout& layout, int32_t cores);        // reserved and sealed, header written
  static std::shared_ptr<Arena> map(int fd, const Layout& layout);  // one mapping per process
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const Layout& layout() const { return layout_; }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(base_); }
  RankBlock& rank(int32_t r) const {
    return *reinterpret_cast<RankBlock*>(base_ + layout_.ranks_at + static_cast<size_t>(r) * sizeof(RankBlock));
  }
  char* small(int32_t r, uint64_t parity) const {
    return base_ + layout_.small_at + (static_cast<size_t>(r) * 2 + parity) * kSmallBytes;
  }
  char* staging(int32_t r, uint64_t chunk) const {
    return base_ + layout_.staging_at + (static_cast<size_t>(r) * 2 + (chunk & 1)) * layout_.staging_bytes;
  }
  Channel& channel(int32_t from, int32_t to) const {
    return *reinterpret_cast<Channel*>(base_ + layout_.channels_at + pair(from, to) * sizeof(Channel));
  }
  char* slot(int32_t from, int32_t to, uint64_t number) const {
    return base_ + layout_.slots_at + (pair(from, to) * kSlots + number % kSlots) * layout_.slot_bytes;
  }
  uint64_t offset_of(const std::atomic<uint64_t>& flag) const {
    return static_cast<uint64_t>(reinterpret_cast<const char*>(&flag) - base_);
  }
  // nullptr for what cannot be a flag.
  const std::atomic<uint64_t>* flag_at(uint64_t offset) const;

 private:
  Arena(const Layout& layout, char* base, bool heap) : layout_(layout), base_(base), heap_(heap) {}
  size_t pair(int32_t from, int32_t to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(layout_.world_size) + static_cast<size_t>(to);
  }

  Layout layout_;
  char* base_;
  bool heap_;
};

}  // namespace gsel::shm
