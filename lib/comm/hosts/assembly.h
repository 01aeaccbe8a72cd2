// comm/hosts/assembly.h: the first step of every collective over several hosts: an allgather of the ranks' calls, and,
// if all make the same call, of their payloads. Ranks of one host exchange them through shared memory, and the first of
// them sends one record to the host above it in the tree of hosts. A host whose ranks and lower hosts make the same
// call sends the call once, so the size of a message depends on the number of ranks only by payloads. Costs two
// exchanges in shared memory and the way to the first host and back; a third exchange if the payload is not short. Does
// not know what the calls do.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "comm/hosts/frames.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/roster.h"
#include "comm/shm/call/call.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

// A call as other ranks see it. Has no padding.
struct Head {
  uint64_t fingerprint = 0;  // of everything that must agree
  uint64_t count = 0;
  gsel_collective_kind kind = 0;
  gsel_dtype dtype = 0;
  gsel_op op = 0;
  int32_t root = -1;
  uint64_t bytes = 0;       // payload of each rank
  char operation[32] = {};  // name of a caller's operation
  char label[16] = {};
};

Head head_of(const shm::Call& call, uint64_t bytes);
constexpr int32_t kRootOfExchange = -2;  // in the head of an internal exchange, which the label names

class Assembly {
 public:
  // Exchanged by the ranks of a host; longer payloads follow.
  static constexpr size_t kShortBytes = 168;
  struct Record {
    Head head;
    char payload[kShortBytes];
  };
  // Sizes of a message between hosts without payloads, and the largest total payload that the ranks of a host get
  // together with the verdict; larger ones follow it.
  static constexpr size_t kVerdictBytes = 2 * (sizeof(int32_t) + sizeof(Head));
  static constexpr size_t kMessageBytes = sizeof(Relay::Frame) + kVerdictBytes;
  static constexpr uint64_t kWithVerdictBytes = 65536;

  Assembly(const Roster& roster, shm::Endpoint& local) : roster_(roster), local_(local) {}
  // This rank is the first of its host.
  void lead(Relay& relay) { relay_ = &relay; }
  Relay* relay() const { return relay_; }

  // Uses frames between hosts from the next call on, the same on every rank; nullptr: the tree.
  void take(Frames* frames) { frames_ = frames; }
  // The number of assemblies begun, including one that may have ended. reset_count resets it on every rank at the same
  // point.
  uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }
  void reset_count() { begun_.store(0, std::memory_order_relaxed); }
  std::string text() const;  // of the newest call, for errors; on the thread that makes it
  bool has_frames() const { return frames_ != nullptr; }

  // all[ranks][head.bytes] receives mine[head.bytes] of each rank. Throws GSEL_ERR_MISMATCH on every rank, after which
  // the communicator still works, or the error that has broken it.
  void gather(const Head& head, const void* mine, void* all, double timeout_s);
  // The first rank gets the payloads of all ranks and makes one result of these; every rank gets the result. Only with
  // the tree.
  struct AtFirst {
    uint64_t bytes;  // of the result, no more than a payload
    std::function<void(const char* all, char* result)> make;
  };
  void gather_at_first(const Head& head, const void* mine, AtFirst at_first, char* result, double timeout_s);
  // A rank that is alone on its host receives payloads in frames. With all == nullptr, given() has them until the next
  // call.
  bool is_alone_with_frames() const { return frames_ && roster_.here().size() == 1; }
  const char* given(int32_t rank) const { return frames_->from(roster_.host_of(rank)).bytes; }
  // A gather without payload in two steps, with frames: start_gather() does not wait; finish_gather() waits for the
  // other ranks once and then does nothing. GSEL_ERR_MISMATCH breaks the communicator.
  void start_gather(const Head& head, double timeout_s);
  void finish_gather();
  // Between start_gather() and finish_gather(), on a rank that is alone on its host: adds bytes for each host, which
  // given() has there.
  bool can_add() const { return started_ && is_alone_with_frames(); }
  void add(std::function<Frames::Came(size_t host)> bytes_for) { started_->bytes_for = std::move(bytes_for); }

 private:
  // Of a set of ranks: the lowest rank, and the lowest rank with a different call; -1: all make the same call.
  struct Verdict {
    int32_t differ[2] = {-1, -1};
    Head heads[2];
  };
  static_assert(sizeof(Verdict) == kVerdictBytes);
  // Result of the exchange on this host.
  struct Gathered {
    Verdict verdict;
    Block payloads;  // of all ranks here, if they make the same call
    bool alike() const { return verdict.differ[1] < 0; }
  };
  Gathered gather_here(const Head& head, const void* mine, double timeout_s);
  // "#4711 allreduce": number and name of the call over all hosts, for recordings.
  gsel_str next_label(const Head& head);
  void begin(const Head& head);
  std::string text_of(const Head& head) const;
  static void merge(Verdict& verdict, const Verdict& below);
  void agree(Gathered& here, const Head& head, void* all, double timeout_s);
  void sort_payloads(const Block& said, char* all, uint64_t bytes) const;
  void broadcast_here(void* bytes, uint64_t n, double timeout_s);
  void settle(Gathered here, const Head& head, void* all, double timeout_s);
  // What every rank gets with the verdict.
  uint64_t answer_bytes(const Head& head) const { return at_first_ ? at_first_->bytes : roster_.ranks() * head.bytes; }
  bool gather_by_frames(const Gathered& here, const Head& head, char* all, int64_t deadline_ns);
  Error mismatch(const Verdict& verdict) const;

  const Roster& roster_;
  shm::Endpoint& local_;
  Relay* relay_ = nullptr;
  Frames* frames_ = nullptr;
  struct StartedGather {
    Head head;
    double timeout_s;
    Gathered here;
    std::function<Frames::Came(size_t host)> bytes_for;
  };
  std::optional<StartedGather> started_;  // between start_gather() and finish_gather()
  const AtFirst* at_first_ = nullptr;     // of the call, during gather_at_first()
  std::vector<char> answer_;
  std::atomic<uint64_t> begun_{0};
  Head newest_;
  uint64_t gathered_ = 0;
  char label_[16];
};

}  // namespace gsel::hosts
