// comm/hosts/recovery_listener.cc: see recovery_listener.h.
#include "comm/hosts/recovery_listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/os.h"
#include "comm/hosts/wire.h"

namespace gsel::hosts {
namespace {

constexpr int64_t kAgainNs = 2'000'000;
constexpr uint8_t kByParticipant[] = "a participant of an agreement";

}  // namespace

void ConnectAttempt::begin() {
  since_ns_ = os::now_ns();
  int failure = 0;
  stream_ = begin_connecting(place_, &failure);
  state_ = State::trying;
  if (!stream_) settle(failure);
}

void ConnectAttempt::begin_again() {
  if (os::now_ns() - since_ns_ < kAgainNs) usleep(kAgainNs / 1000);  // the rank lives and has closed the connection
  begin();
}

void ConnectAttempt::settle(int failure) {
  if (failure == 0) {
    state_ = State::open;
    return;
  }
  state_ = failure == ECONNREFUSED ? State::ended : State::unreachable;
  stream_.reset();
}

short ConnectAttempt::events() const {
  return state_ == State::trying ? POLLOUT : POLLIN;
}

void ConnectAttempt::progress(int64_t silence_ns) {
  if (state_ != State::trying) return;
  pollfd item{stream_->fd(), POLLOUT, 0};
  if (poll(&item, 1, 0) > 0) {
    int failure = 0;
    socklen_t length = sizeof failure;
    getsockopt(stream_->fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
    settle(failure);
  } else if (os::now_ns() - since_ns_ > silence_ns) {
    settle(ETIMEDOUT);
  }
}

std::span<const uint8_t> bytes_of_marks(const std::vector<char>& marks) {
  return {reinterpret_cast<const uint8_t*>(marks.data()), marks.size()};
}

Bytes32 sign_request(const Secret& secret, const gsel_unique_id& job, const Bytes32& nonce, const HostRequest& request,
                     const std::vector<char>& marks, const Members& newest) {
  return secret.sign({kByParticipant, bytes_of(nonce), bytes_of(job), bytes_of(request), bytes_of_marks(marks),
                      bytes_of(newest.generation), bytes_of_marks(newest.marks)});
}

void RecoveryListener::accept_connections() {
  for (const os::Fd& fd : own.fds())
    while (auto stream = Listener::accept(fd)) {
      Challenge challenge;
      os::random_bytes(&challenge.nonce, sizeof challenge.nonce);
      IncomingRequest incoming{std::move(*stream), challenge.nonce, os::now_ns()};
      if (incoming.stream.send(challenge, os::now_ns())) requests.push_back(std::move(incoming));
    }
}

void RecoveryListener::read_request(IncomingRequest& incoming, const Secret& secret) const {
  struct Signed {
    HostRequest request;
    Bytes32 signature;
  } said;
  const size_t ranks = ports.size(), whole = sizeof said + ranks + sizeof(Generation) + ranks;
  const bool goes_on = incoming.stream.fill(whole + 1);
  incoming.is_over = !goes_on || (!incoming.request && os::now_ns() - incoming.since_ns > kHandshakeNs);
  if (incoming.request) return;
  std::vector<char> all(whole);
  if (!incoming.stream.take(all.data(), all.size())) return;
  const char* at = all.data();
  const auto read = [&at](void* to, size_t n) {
    std::memcpy(to, at, n);
    at += n;
  };
  read(&said, sizeof said);
  incoming.marks.resize(ranks);
  read(incoming.marks.data(), ranks);
  read(&incoming.newest.generation, sizeof(Generation));
  incoming.newest.marks.resize(ranks);
  read(incoming.newest.marks.data(), ranks);
  const HostRequest& request = said.request;
  if (request.rank < 0 || static_cast<size_t>(request.rank) >= ranks ||
      sign_request(secret, job, incoming.nonce, request, incoming.marks, incoming.newest) != said.signature)
    incoming.is_over = true;
  else
    incoming.request = request;
}

}  // namespace gsel::hosts
