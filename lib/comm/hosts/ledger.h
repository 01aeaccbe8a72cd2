// comm/hosts/ledger.h: what the ranks of a communicator over several hosts have announced before a transport of devices
// makes it on their streams. Kept by the first rank of the first host. Collectives are compared by their number,
// messages by their number among those of a pair; whoever comes last is compared with who came first. Does not know how
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

// One call of one rank, or that it leaves. Travels as it is.
struct Announcement {
  enum class What : uint32_t { call, leaves };
  What what = What::call;
  int32_t rank = -1;
  Head head = {};
  uint64_t number = 0;       // of what the rank announces, from 1
  uint64_t collectives = 0;  // among them, with this one
  uint64_t recv_count = 0;   // of a sendrecv, and from whom
  int32_t source = -1;
  int32_t tag = 0;
  uint32_t registered = 0;  // 1: its buffers are
  uint32_t counts = 0;      // of an alltoallv: what it sends to each rank, then what it receives, which follow
  double timeout_s = 0;
};

class Ledger {
 public:
  explicit Ledger(const Roster& roster) : roster_(roster), ranks_(roster.ranks()) {}

  // What is wrong by it; nullopt: nothing.
  std::optional<Error> take(const Announcement& announcement, std::span<const uint64_t> counts, int64_t now_ns);
  // Whether a rank is late, or has left without a call that another one waits for.
  std::optional<Error> look(int64_t now_ns) const;

 private:
  struct Rank {
    uint64_t collectives = 0;
    bool has_left = false;
    std::optional<Announcement> last;
  };
  struct Collective {  // that some have announced
    Announcement first;
    size_t ranks;         // how many
    int64_t deadline_ns;  // of the one that waits the shortest
    Announcement waits;
  };
  struct Part {  // of a message
    gsel_dtype dtype;
    uint64_t count;
    Announcement call;
  };
  struct Pair {  // those that the other side has not announced
    std::deque<Part> sends, receives;
  };
  std::optional<Error> take_collective(const Announcement& call, int64_t now_ns);
  std::optional<Error> take_messages(const Announcement& call, std::span<const uint64_t> counts);
  std::optional<Error> take_part(int32_t peer, bool sends, const Part& part);
  const Announcement* unmet_by(int32_t rank) const;
  std::string text_of(const Announcement& call) const;
  std::string late_text(int32_t rank, const Announcement& waits) const;

  const Roster& roster_;
  std::vector<Rank> ranks_;
  std::deque<Collective> open_;
  uint64_t ended_ = 0;                                 // collectives that all have announced
  std::map<std::pair<int32_t, int32_t>, Pair> pairs_;  // by sender and receiver
};

// "allreduce(count 4, f32, sum) on a stream"
std::string text_of(const Roster& roster, const Announcement& call);

}  // namespace gsel::hosts
