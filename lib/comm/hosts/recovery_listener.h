// comm/hosts/recovery_listener.h: listening sockets of all ranks of a communicator over several hosts, so that ranks
// that survive a failure find each other without the connections that broke with it. Communicators made by shrinks keep
// the listeners. Only agreements (agreement.h) and inquiries about a silent host (inquiry.h) accept connections. Does
// not know what is agreed there.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {

// A communicator in a series made by shrinks. Has no padding, since its bytes are signed.
struct Generation {
  uint32_t number = 0;           // 0: the first communicator, not made by a shrink
  int32_t coordinator = -1;      // rank of the first communicator that listens for the first ranks of the other hosts
  gsel_unique_id job = {};       // random, unique to this communicator
  uint16_t port = 0;             // of the coordinator
  uint16_t others_may_live = 0;  // a rank that is left out has neither answered nor ended
  uint32_t reserved = 0;
};
enum class Mark : char { none = 0, comes, left_out };
// A generation and its members: a Mark for each rank of the first communicator.
struct Members {
  Generation generation;
  std::vector<char> marks;
};

// A host's request, on behalf of its ranks that take part. Has no padding, since its bytes are signed.
struct HostRequest {
  enum class Aim : uint32_t { shrink = 1, resync, group, inquire };
  int32_t rank = 0;  // that speaks for the host
  Aim aim = Aim::shrink;
  uint64_t agreed = 0;      // must be the same on all hosts; of an inquiry (inquiry.h): the rank that it is about
  int32_t odd = -1;         // a rank of this host with another value
  uint32_t generation = 0;  // of the communicator that is called
  Bytes32 nonce = {};
};

// A connection at a recovery listener, and its request after its signature has been checked.
struct IncomingRequest {
  Stream stream;
  Bytes32 nonce;
  int64_t since_ns;
  std::optional<HostRequest> request = {};
  std::vector<char> marks = {};  // by rank, see agreement.h
  Members newest = {};           // newest generation that it knows
  bool is_over = false;
};

// Shared by a communicator and those that shrinks make of it. Ranks are those of the first communicator.
struct RecoveryListener {
  std::mutex mutex;           // held by one agreement at a time; for newest and is_kept
  std::mutex requests_mutex;  // for own and requests; held briefly, so that inquiries are answered during an agreement
  Listener own = Listener::at_any_port();
  gsel_unique_id job;                     // of the first communicator
  std::vector<uint16_t> ports;            // by rank
  std::vector<IncomingRequest> requests;  // not answered yet
  Members newest;                         // newest generation that this rank knows
  bool is_kept = false;                   // open until the process ends

  // With requests_mutex held. accept_connections: accepts new connections. read_request: reads what a connection has
  // brought so far.
  void accept_connections();
  void read_request(IncomingRequest& incoming, const Secret& secret) const;
};

// A communicator's place in the series of communicators made by shrinks.
struct ShrinkSeries {
  std::shared_ptr<RecoveryListener> recovery;
  std::shared_ptr<const HostTable> first;  // of the first communicator
  std::vector<int32_t> ranks;              // by rank: the rank in the first communicator
  uint32_t generation;                     // 0: the first communicator
};

std::span<const uint8_t> bytes_of_marks(const std::vector<char>& marks);
Bytes32 sign_request(const Secret& secret, const gsel_unique_id& job, const Bytes32& nonce, const HostRequest& request,
                     const std::vector<char>& marks, const Members& newest);

// A connection to the recovery listener of a rank, which may not be made yet.
class ConnectAttempt {
 public:
  // ended: the connection is refused, so the rank has ended or left. unreachable: the rank may live.
  enum class State { trying, open, ended, unreachable };

  ConnectAttempt(int32_t rank, MeetingPlace place) : rank_(rank), place_(std::move(place)) { begin(); }
  int32_t rank() const { return rank_; }
  State state() const { return state_; }
  Stream& stream() { return *stream_; }
  bool has_descriptor() const { return stream_.has_value() && (state_ == State::trying || state_ == State::open); }
  short events() const;
  // Updates the state, after poll or after some time. silence_ns: time without an answer after which the rank is
  // unreachable.
  void progress(int64_t silence_ns);
  // The other side has closed the connection: connects again to find out whether it has ended.
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
