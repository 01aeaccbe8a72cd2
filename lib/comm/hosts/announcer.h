// comm/hosts/announcer.h: brings what ranks announce to the ledger. A rank says it to the first rank of its host, which
// passes it on to the first rank of the first host. Nobody waits for that, and no thread works for it alone: whoever
// announces or looks after it moves on what has come. Does not know what is announced.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/hosts/ledger.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/stream.h"
#include "comm/interface/control.h"

namespace gsel::hosts {

class Announcer {
 public:
  // up: to where this rank's announcements go; nullopt on the first rank of the first host. down: to those that send
  // theirs here. local: the control of the ranks of this host.
  Announcer(const Roster& roster, Control& local, std::optional<Stream> up, std::vector<Stream> down);
  ~Announcer();  // says that this rank leaves
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  // call: collectives is 1 for one; its other numbers are filled in. What is wrong breaks the communicator. Any thread,
  // as the next.
  void announce(Announcement call, std::span<const uint64_t> counts);
  void look();
  // Nobody hears of this one any more: another takes its place.
  void abandon() { is_abandoned_ = true; }

 private:
  struct Down {
    Stream stream;
    std::optional<Announcement> head = {};  // of one that has not come whole
  };
  void move_on();
  void hear(Down& down);
  void take(const Announcement& announcement, std::span<const uint64_t> counts);
  void hear_above();
  void notice_who_waits_above();
  void put(const Announcement& announcement, std::span<const uint64_t> counts);
  void flush();

  const Roster& roster_;
  Control& local_;
  std::mutex mutex_;
  std::optional<Stream> up_;
  std::vector<Down> down_;
  std::optional<Ledger> ledger_;  // without up_
  std::vector<char> out_;         // that up_ has not taken
  Announcement own_;              // the latest
  // Who has left above this rank, and the call of this host that has the highest number of collectives.
  std::optional<Announcement> left_above_, furthest_;
  int64_t moved_ns_ = 0;
  bool is_abandoned_ = false;
};

}  // namespace gsel::hosts
