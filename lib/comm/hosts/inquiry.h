// comm/hosts/inquiry.h: finds out whether a host that is silent here is silent to others, too. Asks the first ranks of
// some other hosts ("witnesses"), through their recovery listeners (recovery_listener.h), to connect to that host's
// listener, and does the same for hosts that ask. A rank lives if it sends a challenge at its listener; a connection
// that the kernel accepts for a stopped process does not count. Used by one thread, which never waits here. Does not
// know the consequences of an answer.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "comm/hosts/recovery_listener.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {

class Inquiries {
 public:
  Inquiries(const Roster& roster, const ShrinkSeries& series, const Secret& secret, int64_t silence_ns);

  // unknown: there is no other host to ask; alone: no witness has answered.
  enum class Finding : uint32_t { unknown, alone, silent, ended, answers };
  struct Found {
    size_t about;  // a host
    Finding finding;
    size_t witness;  // the host that found it
  };

  void begin(size_t about);
  // A finished inquiry; each is returned once.
  std::optional<Found> take();

  // add_to: adds the descriptors to poll. progress: called after poll or after some time.
  void add_to(std::vector<pollfd>& items);
  void progress();

 private:
  // A connection to the recovery listener of a host, until its first rank sends a challenge, has ended or is late.
  struct Call {
    Call(size_t at, ConnectAttempt given) : host(at), attempt(std::move(given)) {}
    size_t host;  // of the witness
    ConnectAttempt attempt;
    std::optional<Challenge> challenge = {};
    bool is_over = false;
  };
  struct Inquiry {
    size_t about;  // a host
    int64_t until_ns;
    std::list<Call> witnesses;
    Bytes32 nonce = {};
    std::optional<Found> found = {};
  };
  struct Incoming {  // on behalf of a host that asks at this rank's listener
    IncomingRequest from;
    int64_t until_ns;
    Call call;
  };
  int32_t first_of(size_t host) const;
  ConnectAttempt connect_to_listener(int32_t rank) const;
  void progress(Call& call) const;
  void progress(Inquiry& inquiry);
  void send_request(Inquiry& inquiry, Call& call) const;
  void receive_finding(Inquiry& inquiry, Call& call) const;
  void serve_listener();
  bool answer(Incoming& incoming) const;

  const Roster& roster_;
  const ShrinkSeries series_;  // messages at recovery listeners have ranks of the first communicator
  RecoveryListener& recovery_;
  const Secret& secret_;
  const int64_t silence_ns_, witness_ns_;  // witness_ns_: time limit of a witness; the host that asks waits twice that
  std::list<Inquiry> inquiries_;
  std::list<Incoming> incoming_;
};

}  // namespace gsel::hosts
