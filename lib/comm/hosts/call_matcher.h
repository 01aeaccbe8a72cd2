// comm/hosts/call_matcher.h: the calls that the ranks of a communicator over several hosts have announced before a
// transport of devices makes them on streams. Kept by the first rank of the first host. Collectives are compared by
// their number, messages by their number within a pair; a later rank is compared with the first. Does not know how
// announcements travel.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/hosts/assembly.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {

// An announcement of a rank: a call, or that the rank leaves. Sent as raw bytes.
struct Announcement {
  enum class What : uint32_t { call, leaves };
  What what = What::call;
  int32_t rank = -1;
  Head head = {};
  uint64_t number = 0;       // of the rank's announcements, from 1
  uint64_t collectives = 0;  // of the rank so far, including this call
  uint64_t recv_count = 0;   // of a sendrecv
  int32_t source = -1;       // of a sendrecv
  int32_t tag = 0;
  uint32_t registered = 0;  // 1: its buffers are registered
  uint32_t counts = 0;      // of an alltoallv: number of counts that follow, of sends to each rank, then of receives
  double timeout_s = 0;
};

class CallMatcher {
 public:
  explicit CallMatcher(const Roster& roster) : roster_(roster), ranks_(roster.ranks()) {}

  // Adds an announcement. Returns the error that it shows, if any.
  std::optional<Error> take(const Announcement& announcement, std::span<const uint64_t> counts, int64_t now_ns);
  // Whether a rank is late, or has left without a call that another one waits for.
  std::optional<Error> find_late(int64_t now_ns) const;

 private:
  struct Rank {
    uint64_t collectives = 0;
    bool has_left = false;
    std::optional<Announcement> last;
  };
  // A collective that some ranks have announced.
  struct Collective {
    Announcement first;
    size_t ranks;         // number of ranks that have announced it
    int64_t deadline_ns;  // the earliest deadline of its announcements
    Announcement waits;   // the announcement with the earliest deadline
  };
  // One side of a message: its send or its receive.
  struct Side {
    gsel_dtype dtype;
    uint64_t count;
    Announcement call;
  };
  // Messages from one rank to another that only one side has announced.
  struct Pair {
    std::deque<Side> sends, receives;
  };
  std::optional<Error> take_collective(const Announcement& call, int64_t now_ns);
  std::optional<Error> take_messages(const Announcement& call, std::span<const uint64_t> counts);
  std::optional<Error> take_side(int32_t peer, bool sends, const Side& side);
  const Announcement* unmet_by(int32_t rank) const;
  std::string text_of(const Announcement& call) const;
  std::string late_text(int32_t rank, const Announcement& waits) const;

  const Roster& roster_;
  std::vector<Rank> ranks_;
  std::deque<Collective> open_;
  uint64_t ended_ = 0;                                 // collectives that all ranks have announced
  std::map<std::pair<int32_t, int32_t>, Pair> pairs_;  // by sender and receiver
};

// "allreduce(count 4, f32, sum) on a stream"
std::string text_of(const Roster& roster, const Announcement& call);

}  // namespace gsel::hosts
