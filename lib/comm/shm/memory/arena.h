// comm/shm/memory/arena.h: the arena of a communicator, its control memory, and the layout of the arena. The arena is
// in the shared memory of a family (family.h). That of a communicator of one rank is on the heap, unless it is a part
// of a communicator over several hosts, whose recordings are read from outside. The pages of its first part are
// reserved at creation, those of staging memory and channels when a rank first writes there. Does not know the
// protocols.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/shm/call/call.h"
#include "comm/shm/tuning/tuning.h"

namespace gsel::shm {

constexpr size_t kLineBytes = 48;          // payload inside a line
constexpr size_t kLeastSmallBytes = 4096;  // least size of a slot for a payload sent with a header line
constexpr uint64_t kRingCalls = 256;       // of the flight recorder
constexpr uint64_t kChannelLines = 8;      // of a channel
constexpr uint64_t kChannelSlots = 4;      // of a channel's data
constexpr uint32_t kChannelOffers = 16;    // of a channel, at a time
constexpr uint64_t kDeviceCalls = 64;      // announced ahead of the slowest rank, see announcements.cc
constexpr uint64_t kDeviceMessages = 16;   // remembered for each pair and direction, see announcements.cc
constexpr size_t kTextBytes = 2048;        // of the error that broke a communicator, with NUL
constexpr uint64_t kJointCalls = 16;       // remembered for each rank, see announcements.cc
constexpr size_t kLabelBytes = 16;
constexpr size_t kOuterCallBytes = 256;
constexpr size_t kHostBytes = 64;
constexpr size_t kPartsNamed = 32;  // of a communicator over several hosts, for recordings
constexpr size_t kNameBytes = 64;   // of a communicator's name, with NUL
constexpr size_t kWaits = 8;        // published waits of a rank at a time, see chain.h

// Posted first by every rank in every collective. The sequence is written last: a rank that sees it sees the payload.
struct alignas(64) HeaderLine {
  std::atomic<uint64_t> sequence;
  uint64_t fingerprint;
  unsigned char payload[kLineBytes];
};
static_assert(sizeof(HeaderLine) == 64);

// Payload of a header line if the call's payload is not in the line: how to access this rank's buffers.
struct BufferAddresses {
  uint64_t send_offset;  // in the family's memory; 0: not there
  uint64_t recv_offset;
  uint64_t send_address;  // in the rank's process
  uint64_t recv_address;
  uint32_t reads_all;  // 1: this rank may read the memory of every other
  uint32_t in_parts;   // 1: send is given in parts; the rank's small slot has their places
};
static_assert(sizeof(BufferAddresses) <= kLineBytes);

// An entry of a rank's flight recorder. Readers do not stop the writer: valid if `number` is the same before and after.
struct alignas(64) CallEntry {
  std::atomic<uint64_t> number;  // of the rank's calls, from 1
  std::atomic<uint64_t> packed;  // see PackedCall
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> detail;  // hash of counts or of the operation's name; see Call
  std::atomic<int64_t> entered;  // os::ticks
  std::atomic<int64_t> left;     // 0: under way; negative: failed at that time
  std::atomic<uint64_t> label[kLabelBytes / sizeof(uint64_t)];
};
static_assert(sizeof(CallEntry) == 64);

// The fields of CallEntry::packed.
struct PackedCall {
  gsel_collective_kind kind;
  CallOrigin origin;
  bool grouped;
  gsel_dtype dtype;
  gsel_op op;  // GSEL_OP_USER for any caller's operation
  int32_t source, root;
};
inline PackedCall unpack(uint64_t packed) {
  const auto op = static_cast<gsel_op>(packed >> 40 & 255);
  return {static_cast<int32_t>(packed >> 56),
          static_cast<CallOrigin>(packed >> 32 & 127),
          (packed & kGrouped) != 0,
          static_cast<int32_t>(packed >> 48 & 255),
          op == 255 ? GSEL_OP_USER : op,
          static_cast<int16_t>(packed >> 16 & 0xffff),
          static_cast<int16_t>(packed & 0xffff)};
}

// A collective on the stream of a device that a rank has announced.
struct DeviceCall {
  std::atomic<uint64_t> fingerprint;
  std::atomic<uint64_t> number;  // of the rank's calls
};

// What all ranks do together on a higher level than calls, such as a step of a trainer. Valid if `key` is the same
// before and after.
struct JointCall {
  std::atomic<uint64_t> key;  // number of the rank's joint calls, from 1, and kind
  std::atomic<uint64_t> argument;
};

// The rank of another family that a rank waits for, see elsewhere.h. Valid if `version` is even and the same before and
// after.
struct ElsewhereRecord {
  std::atomic<uint64_t> version;
  std::atomic<uint64_t> person;
  std::atomic<uint64_t> process;  // 0: no wait
  std::atomic<int64_t> ended_ns;
  std::atomic<uint64_t> who[20];
  std::atomic<uint64_t> where[44];
};

struct alignas(128) RankBlock {
  HeaderLine line[2];  // by parity of the call's sequence

  // Progress within large calls, in chunks counted over the life of the communicator.
  alignas(128) std::atomic<uint64_t> staged;
  std::atomic<uint64_t> reduced;
  std::atomic<uint64_t> copied;

  alignas(128) std::atomic<uint64_t> posted[2];  // by parity: number of the call of that line
  double factor[2];                              // by parity: of a scaled sum
  std::atomic<uint64_t> latest_number;           // 2n during call n, 2n + 1 after it
  std::atomic<uint64_t> alone_in;                // see crossed.cc

  // What the rank waits for, after it has waited long: offset of the flag in the arena, wanted value, owner of the
  // flag.
  std::atomic<uint64_t> awaited_flag;
  std::atomic<uint64_t> awaited_value;
  std::atomic<int32_t> awaited_rank;  // + 1; 0: none
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> gone;      // the rank's last write to this arena
  std::atomic<uint32_t> touching;  // 1 while the rank works in buffers of the others; see direct.cc
  std::atomic<uint32_t> reform;    // whether the rank is in the successor, after a shrink or a resync; see reform.cc
  std::atomic<uint32_t> resync;
  // The group that the rank asks for in a broken communicator, and the place of its arena, see broken_group.cc.
  std::atomic<uint64_t> group_word, group_place;
  int32_t pid;  // these three are set at creation
  int32_t family_rank;
  std::atomic<int32_t> shown_rank;  // in texts; see membership.h

  // By parity: name of a caller's operation, for texts of the call.
  alignas(128) std::atomic<uint64_t> operation[2][4];

  // With alone_in: text of the call that the collective is a step of, with NUL; empty: the collective is no step.
  alignas(128) std::atomic<uint64_t> outer_call[kOuterCallBytes / sizeof(uint64_t)];

  // Other ranks that wait for this one: it increments wake_word if sleepers is not 0. This rank waits for any of
  // several messages: a writer to one of its channels increments wakeups if listening is not 0.
  alignas(128) std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> wake_word;
  std::atomic<int32_t> processor;  // where it last waited, + 1
  alignas(128) std::atomic<uint32_t> listening;
  std::atomic<uint32_t> wakeups;

  // In the joined communicator only: where the rank waits now, in all communicators of the family; see chain.h.
  alignas(128) std::atomic<uint64_t> waits[kWaits];
  std::atomic<uint64_t> person;  // the thread that has joined
  ElsewhereRecord elsewhere;
  // In the joined communicator only: the ranks whose private memory this rank may read, one bit for each rank.
  std::atomic<uint64_t> reads[kMaxRanks / 64];

  alignas(128) std::atomic<uint64_t> announced;  // collectives on the stream of a device
  DeviceCall device_call[kDeviceCalls];          // by their number

  alignas(128) std::atomic<uint64_t> joint_calls;
  JointCall joint_call[kJointCalls];  // by their number
};

// From one rank to another: a ring of lines, each a message or a chunk of one. The data of a long message is not in the
// line; one of the channel's offers has the state of the message, since messages are not received in the order sent.
struct alignas(64) ChannelLine {
  std::atomic<uint64_t> sequence;  // number of the line, from 1; written last
  uint64_t word;                   // see channel.h
  unsigned char payload[kLineBytes];
};
struct ChannelOffer {
  std::atomic<uint64_t> state;  // see channel.h; changed by both sides
  uint64_t wanted;              // of a refused offer: type and count of the receive
};
// Messages on streams of devices, announced by one side of a pair. Valid if `number` is the same before and after.
struct DeviceMessages {
  std::atomic<uint64_t> announced;
  struct Entry {
    std::atomic<uint64_t> number;  // from 1
    std::atomic<uint64_t> word;    // type and count
    std::atomic<uint64_t> call;    // of the rank's calls
  } entry[kDeviceMessages];        // by their number
};
struct alignas(128) Channel {
  ChannelLine line[kChannelLines];
  alignas(128) std::atomic<uint64_t> taken;  // lines, by the receiver
  alignas(64) ChannelOffer offer[kChannelOffers];
  alignas(128) DeviceMessages device_sends;  // by the sender
  alignas(128) DeviceMessages device_receives;
};

// The part on one host of a communicator over several hosts, for recordings.
struct PartOfHost {
  char host[kHostBytes];  // its name
  int32_t first_rank;     // in texts
  int32_t ranks;          // 0: not known
};

struct ArenaHeader {
  std::atomic<uint64_t> magic;
  uint32_t version;
  int32_t world_size;
  uint64_t total_bytes;
  int32_t cores;        // processors that the ranks may use together
  int32_t order;        // GSEL_ORDER_*
  uint32_t asymmetric;  // 1: a rank that goes to sleep makes all ranks pass a barrier, so posting needs none
  uint32_t reserved;
  Tuning tuning;      // rank 0's, so that all ranks choose the same protocols
  int64_t tick_zero;  // os::ticks and CLOCK_MONOTONIC at creation, to read recordings
  int64_t ns_zero;
  char name[kNameBytes];  // of the communicator

  // The first failure, which broke the communicator: 0 none, 1 being written, 2 readable.
  alignas(128) std::atomic<uint32_t> broken;
  int32_t broken_code;
  int32_t broken_rank;    // the rank that caused it, numbered as in texts
  int32_t broken_family;  // its rank of the family; -1: no particular rank
  int64_t broken_ns;      // time
  char broken_text[kTextBytes];
  ElsewhereRecord broken_elsewhere;  // the rank that caused it, if of another family

  // Offset of the successor's arena in the family's memory, after a shrink or resync; 0: none yet. See reform.cc.
  alignas(128) std::atomic<uint64_t> successor;

  // For recordings, in the part on this host of a communicator over several hosts. part_of: an id that all parts share,
  // written last; 0: this is no part.
  std::atomic<uint64_t> part_of;
  int32_t part_ranks;  // on all hosts
  int32_t part_hosts;
  char part_host[kHostBytes];     // the name of this host
  PartOfHost parts[kPartsNamed];  // of the first hosts, in the order of their first ranks
};

// A member of a communicator: process id, rank in the family, and rank in texts.
struct Seat {
  int32_t pid;
  int32_t family_rank;
  int32_t shown_rank;
};

// Offsets and sizes in an arena of `ranks` ranks.
struct Layout {
  explicit Layout(int32_t ranks);
  int32_t world_size;
  size_t small_bytes;    // slot for a payload sent with the header line
  size_t staging_bytes;  // one of a rank's two staging buffers
  size_t slot_bytes;     // of one slot of a channel
  size_t ranks_at, small_at, rings_at, staging_at, channels_at, slots_at, total_bytes;
  size_t reserved_bytes() const { return staging_at; }  // from offset 0; their pages exist from creation
};

class Arena {
 public:
  // For a world size of 1: on the heap, or in shared memory of its own, which recordings are read from; a lack of such
  // memory is a line of the log.
  static std::shared_ptr<Arena> alone(int32_t order, const Seat& seat, std::string_view name, bool is_shared = false);
  // Writes the header of a new arena into zeroed memory, magic last.
  static void create(char* base, const Layout& layout, const ArenaHeader& facts, const std::vector<Seat>& seats,
                     std::string_view name);
  // An existing arena at base. `keep` owns the memory; `place`: offset in the family's memory. GSEL_ERR_VERSION if the
  // layout or version differs.
  static std::shared_ptr<Arena> at(char* base, const Layout& layout, std::shared_ptr<const void> keep,
                                   uint64_t place = 0);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  const Layout& layout() const { return layout_; }
  char* base() const { return base_; }
  uint64_t place() const { return place_; }  // offset in the family's memory; 0: not there
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(base_); }
  RankBlock& rank(int32_t r) const {
    return *reinterpret_cast<RankBlock*>(base_ + layout_.ranks_at + static_cast<size_t>(r) * sizeof(RankBlock));
  }
  char* small(int32_t r, uint64_t parity) const {
    return base_ + layout_.small_at + (static_cast<size_t>(r) * 2 + parity) * layout_.small_bytes;
  }
  CallEntry& call(int32_t r, uint64_t number) const {
    return reinterpret_cast<CallEntry*>(base_ +
                                        layout_.rings_at)[static_cast<size_t>(r) * kRingCalls + number % kRingCalls];
  }
  char* staging(int32_t r, uint64_t chunk) const {
    return base_ + layout_.staging_at + (static_cast<size_t>(r) * 2 + (chunk & 1)) * layout_.staging_bytes;
  }
  Channel& channel(int32_t from, int32_t to) const {
    return *reinterpret_cast<Channel*>(base_ + layout_.channels_at + pair(from, to) * sizeof(Channel));
  }
  char* slot(int32_t from, int32_t to, uint64_t number) const {
    return base_ + layout_.slots_at + (pair(from, to) * kChannelSlots + number % kChannelSlots) * layout_.slot_bytes;
  }
  uint64_t offset_of(const std::atomic<uint64_t>& flag) const {
    return static_cast<uint64_t>(reinterpret_cast<const char*>(&flag) - base_);
  }
  // nullptr if the offset is invalid.
  const std::atomic<uint64_t>* flag_at(uint64_t offset) const;

 private:
  Arena(const Layout& layout, char* base, std::shared_ptr<const void> keep, uint64_t place)
      : layout_(layout), base_(base), keep_(std::move(keep)), place_(place) {}
  size_t pair(int32_t from, int32_t to) const {
    return static_cast<size_t>(from) * static_cast<size_t>(layout_.world_size) + static_cast<size_t>(to);
  }

  Layout layout_;
  char* base_;
  std::shared_ptr<const void> keep_;  // owns the memory
  uint64_t place_;
};

}  // namespace gsel::shm
