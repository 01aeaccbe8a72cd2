// fake/cuda/clique.h: what the ranks of one id share, be they threads or processes: memory of the one that made the id,
// which the others map. A rank posts its part of a call, with its data, when the call has come to the head of its
// stream there; each rank then takes what it needs from the posts of the others. Does not know streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "nccl_api.h"

namespace fake_nccl {

constexpr int kMostRanks = 32;
constexpr uint64_t kSlots = 64, kMessageSlots = 8;
constexpr uint64_t kRing = uint64_t{64} << 20;  // bytes of data that a rank has under way

// One rank's part of one call.
struct Post {
  std::atomic<uint64_t> number;     // of the call, from 1
  uint64_t offset, bytes;           // in the rank's ring
  uint32_t memory;                  // kSends and so on
  uint64_t send_place, recv_place;  // in windows; 0: in none
  char signature[96];
};
constexpr uint32_t kSends = 1, kSendsRegistered = 2, kReceives = 4, kReceivesRegistered = 8;

// Where a window of a rank lies.
struct WindowPlace {
  std::atomic<uint64_t> allocation, offset, place;  // bytes, bytes, and the window's number in NCCL's own address space
};

struct RankShare {
  std::atomic<int> pid, device, version;
  std::atomic<uint64_t> host;
  std::atomic<uint32_t> address, port;                // where it listens, in the order of the network
  std::atomic<int> has_joined, is_reached, has_gone;  // reached: by the rank before
  std::atomic<int64_t> wanted_ns;                     // when somebody last waited for this rank
  std::atomic<uint64_t> calls;                        // collectives that the host has made
  std::atomic<uint64_t> sends[kMostRanks];            // messages to each rank that the host has made
  std::atomic<uint64_t> receives[kMostRanks];         // the same from each
  std::atomic<uint64_t> windows;                      // that the rank has begun to make
  WindowPlace window[2];                              // the last two of them
  std::atomic<uint64_t> done;                         // collectives that have run
  std::atomic<uint64_t> taken[kMostRanks];            // messages from each rank
  Post collectives[kSlots];
  Post messages[kMostRanks][kMessageSlots];  // to each
};

class Clique {
 public:
  // A new id, whose memory lives as long as this process or one that has joined.
  static UniqueId make_id();
  // nullptr: who made the id is gone.
  static std::shared_ptr<Clique> open(const UniqueId& id, int n_ranks);

  int n_ranks() const { return n_ranks_; }
  RankShare& rank(int r) const { return shares_[r]; }
  // A process that has ended, or that the kernel is about to forget.
  bool is_dead(int r) const;
  bool has_other_processes() const;

  // Bytes in the ring of a rank of this process; nullptr: there is no room before others have taken theirs.
  bool has_room(int r, uint64_t bytes) const;
  char* place(int r, uint64_t bytes, const Post& of, uint64_t number);
  const char* data(int r, const Post& post) const { return ring(r) + post.offset; }
  bool is_taken(int r, const Post& post, uint64_t number) const;

 private:
  uint64_t room(int r, uint64_t bytes) const;
  char* ring(int r) const { return rings_ + static_cast<uint64_t>(r) * kRing; }

  int n_ranks_ = 0;
  RankShare* shares_ = nullptr;
  char* rings_ = nullptr;
  struct Placed {
    int rank;
    uint64_t begin, end;
    const Post* post;
    uint64_t number;
  };
  std::list<Placed> placed_;
};

}  // namespace fake_nccl
