// comm/hosts/doors.cc: see doors.h.
#include "comm/hosts/doors.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gsel::hosts {
namespace {

constexpr int64_t kAgainNs = 2'000'000;

}  // namespace

void Knock::begin() {
  since_ns_ = os::now_ns();
  int failure = 0;
  stream_ = begin_connecting(place_, &failure);
  state_ = State::trying;
  if (!stream_) settle(failure);
}

void Knock::begin_again() {
  if (os::now_ns() - since_ns_ < kAgainNs) usleep(kAgainNs / 1000);  // somebody is there and does not want to talk
  begin();
}

void Knock::settle(int failure) {
  if (failure == 0) {
    state_ = State::open;
    return;
  }
  state_ = failure == ECONNREFUSED ? State::ended : State::unreachable;
  stream_.reset();
}

short Knock::events() const {
  return state_ == State::trying ? POLLOUT : POLLIN;
}

void Knock::look(int64_t silence_ns) {
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

}  // namespace gsel::hosts
