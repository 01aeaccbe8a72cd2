// comm/shm/link.h: one rank's end of a shared-memory communicator. Refuses to know who calls it: arguments have been
// checked. Four parts in four files: calls and their header lines (link.cc), waiting and failures (wait.cc), large
// collectives (collectives.cc), messages between two ranks (channel.cc).
//
// Every collective begins with one header line that all ranks post and read. It says which call this is, so ranks that
// disagree find out before anything is written, and it carries small payloads, so those need no second wait. A rank
// posts line n + 1 only after it has read line n of all, and all have then finished call n - 1; so nobody is more than
// one call ahead, two lines per rank in turn suffice, and what call n - 1 shared may be overwritten once all headers
// of call n have been seen.
#pragma once

#include <gsel/plugin.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/shm/rendezvous.h"

namespace gsel::shm {

class Link {
 public:
  explicit Link(const gsel_join& join);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void collective(const gsel_collective& call);
  void abort(const char* reason) noexcept;
  gsel_comm_count counts(gsel_collective_kind kind) const noexcept;

 private:
  // A call with what follows from it.
  struct Call {
    gsel_collective_kind kind;
    gsel_dtype dtype;
    gsel_op op;
    int32_t root;
    uint64_t count;
    size_t element;  // bytes
    const char* send;
    char* recv;
    uint64_t payload_bytes;  // what a rank publishes if it publishes; small or large is decided by it
    bool small() const { return payload_bytes <= kSmallBytes; }
  };
  struct Progress {  // what counts() tells; one writer, any reader
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> bytes{0};
  };
  // The slices of a large reduction and the chunks they are worked off in; see collectives.cc.
  struct Slices;

  // link.cc
  Call complete(const gsel_collective& given) const;
  void run(const Call& call);
  void run_alone(const Call& call);
  void exchange_headers(const Call& call);
  void publish_small(const Call& call, HeaderLine& line, uint64_t parity);
  const char* small_payload(int32_t rank, const Call& call) const;
  void finish_small(const Call& call);
  void record(CallRecord& record, const Call& call) const;
  std::string text_of(const CallRecord& record) const;
  [[noreturn]] void fail_mismatch(uint64_t parity);
  bool publishes(const Call& call) const;
  uint64_t small_bytes_sent(const Call& call) const;

  // wait.cc
  void wait(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
    if (flag.load(std::memory_order_acquire) < value) wait_long(rank, flag, value);
  }
  void wait_long(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  bool spin(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void sleep_until_woken(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void check_peer(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void check_deadline(int32_t rank);
  int32_t laggard(int32_t rank) const;
  std::string activity_of(int32_t rank) const;
  // Makes progress of this rank known; wakes who sleeps for it. The store and the look at the sleepers are sequentially
  // consistent, as are their counterparts in sleep_until_woken, so that one side always sees the other.
  void post(std::atomic<uint64_t>& flag, uint64_t value) {
    flag.store(value, std::memory_order_seq_cst);
    if (mine().sleepers.load(std::memory_order_seq_cst) != 0) wake(mine());
  }
  static void wake(RankBlock& block) noexcept;
  void throw_if_broken() const {
    if (arena_->header().broken.load(std::memory_order_acquire) != 0) throw_broken();
  }
  [[noreturn]] void throw_broken() const;
  void mark_broken(gsel_status code, int32_t about, const std::string& text) const noexcept;
  [[noreturn]] void break_link(gsel_status code, int32_t about, const std::string& text) const;

  // collectives.cc
  void run_large(const Call& call);
  void allreduce(const Call& call);
  void reduce_scatter(const Call& call);
  void allgather(const Call& call);
  void broadcast(const Call& call);
  void wait_all(std::atomic<uint64_t> RankBlock::*flag, uint64_t value);
  void stage_slices(const Call& call, const Slices& slices, uint64_t chunk);
  void reduce_slice(const Call& call, const Slices& slices, uint64_t chunk, char* out);

  // channel.cc
  void send(const Call& call);
  void recv(const Call& call);
  void check_message(const Channel::Message& message, const Call& call);

  RankBlock& mine() const { return arena_->rank(rank_); }
  size_t ranks() const { return static_cast<size_t>(world_size_); }

  int32_t rank_;
  int32_t world_size_;
  int64_t timeout_ns_;
  int64_t spin_ns_;
  uint64_t fork_generation_;
  std::shared_ptr<Arena> arena_;
  std::vector<Member> members_;
  os::Life life_;

  uint64_t sequence_ = 0;    // of collectives
  uint64_t number_ = 0;      // of calls of any kind
  uint64_t chunks_ = 0;      // of large collectives before this one; the same on every rank
  uint64_t published_ = 0;   // bytes, in this call
  int64_t deadline_ns_ = 0;  // of this call; 0 until it waits long
  Call current_{};           // for messages
  std::array<Progress, GSEL_COLLECTIVE_KINDS> progress_;
};

}  // namespace gsel::shm
