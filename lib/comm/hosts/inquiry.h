// comm/hosts/inquiry.h: whether a host that is silent here is silent to others, too. Asks the first ranks of some other
// hosts, at their doors (doors.h), to knock at that host's, and does the same for others that ask. Whoever says who it
// is at a door lives: what a kernel does for a process that is stopped does not count. Used by one thread, which never
// waits here. Does not know what is made of the answer.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "comm/hosts/doors.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

class Inquiries {
 public:
  Inquiries(const Roster& roster, const Heritage& heritage, const Secret& secret, int64_t silence_ns);

  // unknown: nobody could be asked; alone: none of those that were asked has answered.
  enum class Finding : uint32_t { unknown, alone, silent, ended, answers };
  struct Found {
    size_t about;  // a host
    Finding finding;
    size_t witness;  // the host that has found it
  };

  void ask(size_t about);
  // Once for each host that was asked about.
  std::optional<Found> take();

  // What is waited for, and, once that has come or time has passed, what follows from it.
  void add_to(std::vector<pollfd>& items);
  void look();

 private:
  // At the door of a host, until its first rank says who it is, or has ended, or a time has passed.
  struct Call {
    Call(size_t at, Knock given) : host(at), knock(std::move(given)) {}
    size_t host;  // of a witness
    Knock knock;
    std::optional<Challenge> challenge = {};
    bool is_over = false;
  };
  struct Asked {
    size_t about;  // a host
    int64_t until_ns;
    std::list<Call> witnesses;
    Bytes32 nonce = {};
    std::optional<Found> found = {};
  };
  struct Asking {  // for somebody at the own door
    Visitor guest;
    int64_t until_ns;
    Call call;
  };
  int32_t first_of(size_t host) const;
  Knock knock_at(int32_t rank) const;
  void look(Call& call) const;
  void look(Asked& asked);
  void petition(Asked& asked, Call& call) const;
  void hear_witness(Asked& asked, Call& call) const;
  void attend_to_door();
  bool answer(Asking& asking) const;

  const Roster& roster_;
  const Heritage heritage_;  // at a door ranks go by their numbers in the first communicator
  Doors& doors_;
  const Secret& secret_;
  const int64_t silence_ns_, witness_ns_;  // of a witness; whoever asks waits for twice that
  std::list<Asked> asked_;
  std::list<Asking> asking_;
};

}  // namespace gsel::hosts
