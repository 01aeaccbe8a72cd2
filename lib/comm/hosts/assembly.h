// comm/hosts/assembly.h: what every collective over several hosts begins with: all ranks say which call they make, and
// if they make the same, all get what each of them gives. Ranks of one host say it through shared memory, the first of
// them for all of them to the host above it in the tree of hosts. Hosts that make the same call pass it on once, so
// that what goes over a line of the tree does not grow with the number of ranks, but for what they give. Costs two
// exchanges in shared memory, and the way to the first host and back; a third one where the payload is not short. Does
// not know what the calls do.
#pragma once

#include <gsel/comm.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "comm/hosts/frames.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/roster.h"
#include "comm/shm/call/call.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

// A call as other ranks know it. All bytes are written, since they are compared with memcmp.
struct Head {
  uint64_t fingerprint = 0;  // of what must agree
  uint64_t count = 0;
  gsel_collective_kind kind = 0;
  gsel_dtype dtype = 0;
  gsel_op op = 0;
  int32_t root = -1;
  uint64_t bytes = 0;       // that each rank gives
  char operation[32] = {};  // name of a caller's
  char label[16] = {};
};

Head head_of(const shm::Call& call, uint64_t bytes);
constexpr int32_t kRootOfExchange = -2;  // in the head of what the library says for itself, as the label tells

class Assembly {
 public:
  // What ranks of a host say to each other; longer payloads go after it.
  static constexpr size_t kShortBytes = 168;
  struct Record {
    Head head;
    char payload[kShortBytes];
  };
  // What hosts say to each other over a line of the tree, before payloads, and what the ranks of a host are told, where
  // payloads of all that come to more go after it.
  static constexpr size_t kVerdictBytes = 2 * (sizeof(int32_t) + sizeof(Head));
  static constexpr size_t kMessageBytes = sizeof(Relay::Frame) + kVerdictBytes;
  static constexpr uint64_t kWithVerdictBytes = 65536;

  Assembly(const Roster& roster, shm::Endpoint& local) : roster_(roster), local_(local) {}
  // This rank is the first of its host.
  void lead(Relay& relay) { relay_ = &relay; }
  Relay* relay() const { return relay_; }

  // Between hosts by these, from the next call of every rank on; nullptr: by the tree.
  void take(Frames* frames) { frames_ = frames; }
  // How many this rank has begun, of which the newest may have ended; from 0 again on every rank where all are as far.
  uint64_t begun() const { return begun_.load(std::memory_order_relaxed); }
  void begin_anew() { begun_.store(0, std::memory_order_relaxed); }
  std::string text() const;  // of the newest, as errors quote it; for the thread that is in it
  bool has_frames() const { return frames_ != nullptr; }

  // all[ranks][head.bytes], mine[head.bytes] of each. GSEL_ERR_MISMATCH on every rank, which can go on then; or what
  // has broken the communicator.
  void gather(const Head& head, const void* mine, void* all, double timeout_s);
  // A rank that is alone on its host gets what others give in frames: with all == nullptr it is there, until the next
  // call.
  bool is_alone_with_frames() const { return frames_ && roster_.here().size() == 1; }
  const char* given(int32_t rank) const { return frames_->from(roster_.host_of(rank)).bytes; }
  // The same for no bytes, with frames: this rank goes on, and has heard the others once `hear` has returned, which
  // does nothing but for the first time. GSEL_ERR_MISMATCH breaks the communicator.
  void say(const Head& head, double timeout_s);
  void hear();
  // Of a rank that is alone on its host, between these: bytes for each host come along, and are given there.
  bool can_add() const { return said_ && is_alone_with_frames(); }
  void add(std::function<Frames::Came(size_t host)> bytes_for) { said_->bytes_for = std::move(bytes_for); }

 private:
  // Of some ranks: the lowest one, and the lowest one that makes another call than that; -1: all make the same.
  struct Verdict {
    int32_t differ[2] = {-1, -1};
    Head heads[2];
  };
  static_assert(sizeof(Verdict) == kVerdictBytes);
  // What the ranks of this host say.
  struct Gathered {
    Verdict verdict;
    Block payloads;  // of each, if all make the same call
    bool alike() const { return verdict.differ[1] < 0; }
  };
  Gathered gather_here(const Head& head, const void* mine, double timeout_s);
  // "#4711 allreduce": which call of all hosts this is, for recordings.
  gsel_str next_label(const Head& head);
  void begin(const Head& head);
  std::string text_of(const Head& head) const;
  static void merge(Verdict& verdict, const Verdict& below);
  void agree(Gathered& here, const Head& head, void* all, double timeout_s);
  void sort_payloads(const Block& said, char* all, uint64_t bytes) const;
  void broadcast_here(void* bytes, uint64_t n, double timeout_s);
  void settle(Gathered here, const Head& head, void* all, double timeout_s);
  bool gather_by_frames(const Gathered& here, const Head& head, char* all, int64_t deadline_ns);
  Error mismatch(const Verdict& verdict) const;

  const Roster& roster_;
  shm::Endpoint& local_;
  Relay* relay_ = nullptr;
  Frames* frames_ = nullptr;
  struct Said {
    Head head;
    double timeout_s;
    Gathered here;
    std::function<Frames::Came(size_t host)> bytes_for;
  };
  std::optional<Said> said_;  // and others have not been heard
  std::vector<char> answer_;
  std::atomic<uint64_t> begun_{0};
  Head newest_;
  uint64_t gathered_ = 0;
  char label_[16];
};

}  // namespace gsel::hosts
