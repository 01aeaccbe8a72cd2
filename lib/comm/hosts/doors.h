// comm/hosts/doors.h: where each rank of a communicator over several hosts listens, so that ranks which outlive a
// failure find each other without the connections that broke with it. What shrinks make of the communicator keeps its
// doors. Nobody is let in but by a council (council.h) and by who asks about a silent host (inquiry.h). Does not know
// what is agreed there.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {

// One of the communicators that shrinks have made of each other. All bytes are written, since they are signed.
struct Generation {
  uint32_t number = 0;           // 0: the first, which no shrink has made
  int32_t chair = -1;            // the rank of the first one that listens,
  gsel_unique_id job = {};       // random: of this communicator alone
  uint16_t port = 0;             // where, for the first ranks of the other hosts
  uint16_t others_may_live = 0;  // somebody has not answered, and not ended
  uint32_t reserved = 0;
};
enum class Mark : char { none = 0, comes, left_out };
// With who is in it: a Mark for each rank of the first one.
struct Members {
  Generation generation;
  std::vector<char> marks;
};

// What a host asks for, on behalf of its ranks that come. All bytes are written, since they are signed.
struct Petition {
  enum class Aim : uint32_t { shrink = 1, resync, group, inquire };
  int32_t rank = 0;  // that speaks
  Aim aim = Aim::shrink;
  uint64_t agreed = 0;      // what must be alike on all hosts; of an inquiry (inquiry.h): the rank it is about
  int32_t odd = -1;         // a rank of this host that gives something else
  uint32_t generation = 0;  // of the communicator that the call is of
  Bytes32 nonce = {};
};

// Somebody at the door, and what he asks for once he has shown that he may.
struct Visitor {
  Stream stream;
  Bytes32 nonce;
  int64_t since_ns;
  std::optional<Petition> petition = {};
  std::vector<char> marks = {};  // by rank, see council.h
  Members newest = {};           // that it knows
  bool is_over = false;
};

// Of a communicator and those that shrinks make of it: ranks go by their numbers in the first of them.
struct Doors {
  std::mutex mutex;  // of the one council at a time
  Listener own = Listener::at_any_port();
  gsel_unique_id job;           // of the first communicator
  std::vector<uint16_t> ports;  // by rank
  std::vector<Visitor> guests;  // whom no council has answered
  Members newest;               // that this rank knows
  bool is_kept = false;         // until the process ends

  // With the mutex held: who has come since, and what a guest has said by now.
  void let_in();
  void hear(Visitor& guest, const Secret& secret) const;
};

// What a communicator and those that shrinks make of it have in common, and which of them it is.
struct Heritage {
  std::shared_ptr<Doors> doors;
  std::shared_ptr<const HostTable> first;  // of the one that no shrink has made
  std::vector<int32_t> ranks;              // by rank, what it is in that one
  uint32_t generation;                     // 0: that one
};

std::span<const uint8_t> bytes_of_marks(const std::vector<char>& marks);
Bytes32 sign_petition(const Secret& secret, const gsel_unique_id& job, const Bytes32& nonce, const Petition& petition,
                      const std::vector<char>& marks, const Members& newest);

// A connection to the door of a rank, from the first try on.
class Knock {
 public:
  // ended: nobody listens there any more, so that the rank has ended or left. unreachable: that is not known.
  enum class State { trying, open, ended, unreachable };

  Knock(int32_t rank, MeetingPlace place) : rank_(rank), place_(std::move(place)) { begin(); }
  int32_t rank() const { return rank_; }
  State state() const { return state_; }
  Stream& stream() { return *stream_; }
  bool has_descriptor() const { return stream_.has_value() && (state_ == State::trying || state_ == State::open); }
  short events() const;
  // Once poll has found something, or time has passed: how far it has come. silence_ns: after so long without a word of
  // the host it is unreachable.
  void look(int64_t silence_ns);
  // The other side has closed the connection: whether it has ended is found out by another one.
  void begin_again();

 private:
  void begin();
  void settle(int failure);

  const int32_t rank_;
  const MeetingPlace place_;
  std::optional<Stream> stream_;
  State state_ = State::trying;
  int64_t since_ns_ = 0;
};

}  // namespace gsel::hosts
