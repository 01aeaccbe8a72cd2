// comm/hosts/doors.cc: see doors.h.
#include "comm/hosts/doors.h"

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
constexpr uint8_t kByParty[] = "a host of a council";

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

Bytes32 sign_petition(const Secret& secret, const gsel_unique_id& job, const Bytes32& nonce, const Petition& petition,
                      const std::vector<char>& marks, const Members& newest) {
  return secret.sign({kByParty, bytes_of(nonce), bytes_of(job), bytes_of(petition), bytes_of_marks(marks),
                      bytes_of(newest.generation), bytes_of_marks(newest.marks)});
}

void Doors::accept_guests() {
  for (const os::Fd& fd : own.fds())
    while (auto stream = Listener::accept(fd)) {
      Challenge challenge;
      os::random_bytes(&challenge.nonce, sizeof challenge.nonce);
      Visitor guest{std::move(*stream), challenge.nonce, os::now_ns()};
      if (guest.stream.send(challenge, os::now_ns())) guests.push_back(std::move(guest));
    }
}

void Doors::read_petition(Visitor& guest, const Secret& secret) const {
  struct Signed {
    Petition petition;
    Bytes32 signature;
  } said;
  const size_t ranks = ports.size(), whole = sizeof said + ranks + sizeof(Generation) + ranks;
  const bool goes_on = guest.stream.fill(whole + 1);
  guest.is_over = !goes_on || (!guest.petition && os::now_ns() - guest.since_ns > kHandshakeNs);
  if (guest.petition) return;
  std::vector<char> all(whole);
  if (!guest.stream.take(all.data(), all.size())) return;
  const char* at = all.data();
  const auto read = [&at](void* to, size_t n) {
    std::memcpy(to, at, n);
    at += n;
  };
  read(&said, sizeof said);
  guest.marks.resize(ranks);
  read(guest.marks.data(), ranks);
  read(&guest.newest.generation, sizeof(Generation));
  guest.newest.marks.resize(ranks);
  read(guest.newest.marks.data(), ranks);
  const Petition& petition = said.petition;
  if (petition.rank < 0 || static_cast<size_t>(petition.rank) >= ranks ||
      sign_petition(secret, job, guest.nonce, petition, guest.marks, guest.newest) != said.signature)
    guest.is_over = true;
  else
    guest.petition = petition;
}

}  // namespace gsel::hosts
