// comm/hosts/announcer.h: brings announcements to the call matcher. A rank sends them to the first rank of its host,
// which forwards them to the first rank of the first host. No rank waits for that, and there is no thread for it:
// announce() and progress() forward what has arrived. Does not know what is announced.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/hosts/call_matcher.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/stream.h"
#include "comm/interface/control.h"

namespace gsel::hosts {

class Announcer {
 public:
  // up: connection for this rank's announcements; nullopt on the first rank of the first host. down: connections of the
  // ranks that send theirs here. local: the control of the ranks of this host.
  Announcer(const Roster& roster, Control& local, std::optional<Stream> up, std::vector<Stream> down);
  ~Announcer();  // announces that this rank leaves
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // call: `collectives` is 1 for a collective; rank and numbers are filled in here. A mismatch breaks the communicator.
  // Both: any thread.
  void announce(Announcement call, std::span<const uint64_t> counts);
  void progress();
  // The destructor announces nothing, since another announcer replaces this one.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Down {
    Stream stream;
    std::optional<Announcement> head = {};  // of an announcement whose counts have not all arrived
  };
  void move_on();
  void receive(Down& down);
  void take(const Announcement& announcement, std::span<const uint64_t> counts);
  void receive_above();
  void notice_who_waits_above();
  void put(const Announcement& announcement, std::span<const uint64_t> counts);
  void flush();

  const Roster& roster_;
  Control& local_;
  std::mutex mutex_;
  std::optional<Stream> up_;
  std::vector<Down> down_;
  std::optional<CallMatcher> matcher_;  // without up_
  std::vector<char> out_;               // not yet sent on up_
  Announcement own_;                    // this rank's latest
  // The rank at the other end of up_, if it has left; and this host's announcement with the most collectives.
  std::optional<Announcement> left_above_, furthest_;
  int64_t moved_ns_ = 0;
  bool is_abandoned_ = false;
};

}  // namespace gsel::hosts
