// comm/shm/channel.cc: messages between two ranks. Each ordered pair has a ring of two slots with one writer and one
// reader; a message travels in as many slots as it needs, an empty one in one. Each slot repeats what the message is,
// so the receiver finds a disagreement before it writes; the sender may have returned by then, hence it breaks the
// communicator.
#include <algorithm>
#include <cstring>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {

void Link::send(const Call& call) {
  Channel& channel = arena_->channel(rank_, call.root);
  const size_t slot_bytes = arena_->layout().slot_bytes;
  size_t done = 0;
  do {
    const uint64_t number = channel.sent.load(std::memory_order_relaxed);
    if (number >= kSlots) wait(call.root, channel.taken, number + 1 - kSlots);
    Channel::Message& message = channel.message[number % kSlots];
    message.count = call.count;
    message.dtype = call.dtype;
    const size_t some = std::min(slot_bytes, static_cast<size_t>(call.payload_bytes) - done);
    if (some > 0) std::memcpy(arena_->slot(rank_, call.root, number), call.send + done, some);
    post(channel.sent, number + 1);
    published_ += some;
    done += some;
  } while (done < call.payload_bytes);
}

void Link::recv(const Call& call) {
  Channel& channel = arena_->channel(call.root, rank_);
  const size_t slot_bytes = arena_->layout().slot_bytes;
  size_t done = 0;
  do {
    const uint64_t number = channel.taken.load(std::memory_order_relaxed);
    wait(call.root, channel.sent, number + 1);
    check_message(channel.message[number % kSlots], call);
    const size_t some = std::min(slot_bytes, static_cast<size_t>(call.payload_bytes) - done);
    if (some > 0) std::memcpy(call.recv + done, arena_->slot(call.root, rank_, number), some);
    post(channel.taken, number + 1);
    done += some;
  } while (done < call.payload_bytes);
}

void Link::check_message(const Channel::Message& message, const Call& call) {
  if (message.count == call.count && message.dtype == call.dtype) return;
  break_link(GSEL_ERR_MISMATCH, call.root,
             fmt::format("rank {} called {}, rank {} called {}; make type and count agree", call.root,
                         describe(GSEL_COLLECTIVE_SEND, message.dtype, 0, rank_, message.count), rank_,
                         describe(call.kind, call.dtype, 0, call.root, call.count)));
}

}  // namespace gsel::shm
