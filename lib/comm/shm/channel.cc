// comm/shm/channel.cc: messages between two ranks. Each ordered pair has a ring of lines with one writer and one
// reader; a message travels in as many lines as it needs, an empty one in one, its data in the slot of the same number.
// Each line repeats what the message is, so the receiver finds a disagreement before it writes; the sender may have
// returned by then, hence it breaks the communicator.
#include <algorithm>
#include <cstring>

#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {
namespace {

uint64_t word_of(const Call& call) {
  return static_cast<uint64_t>(call.dtype) << 56 | call.count;
}

}  // namespace

void Link::reserve_channel(int32_t from, int32_t to) {
  const SharedMemory& memory = *family_->memory();
  memory.reserve(memory.position(&arena_->channel(from, to)), sizeof(Channel), "a channel");
  memory.reserve(memory.position(arena_->slot(from, to, 0)), kChannelSlots * arena_->layout().slot_bytes, "a channel");
}

void Link::send(const Call& call) {
  reserve_channel(rank_, call.root);
  Channel& channel = arena_->channel(rank_, call.root);
  const size_t slot_bytes = arena_->layout().slot_bytes;
  size_t done = 0;
  do {
    uint64_t& number = sent_[static_cast<size_t>(call.root)];
    if (number >= kChannelSlots) wait(call.root, channel.taken, number + 1 - kChannelSlots);
    ChannelLine& line = channel.line[number % kChannelLines];
    line.word = word_of(call);
    const size_t some = std::min(slot_bytes, static_cast<size_t>(call.payload_bytes) - done);
    if (some > 0) std::memcpy(arena_->slot(rank_, call.root, number), call.send + done, some);
    post(line.sequence, ++number);
    hit(Step::sent);
    published_ += some;
    done += some;
  } while (done < call.payload_bytes);
}

void Link::recv(const Call& call) {
  reserve_channel(call.root, rank_);
  Channel& channel = arena_->channel(call.root, rank_);
  const size_t slot_bytes = arena_->layout().slot_bytes;
  size_t done = 0;
  do {
    const uint64_t number = channel.taken.load(std::memory_order_relaxed);
    ChannelLine& line = channel.line[number % kChannelLines];
    wait(call.root, line.sequence, number + 1);
    if (line.word != word_of(call)) fail_message(line.word, call);
    const size_t some = std::min(slot_bytes, static_cast<size_t>(call.payload_bytes) - done);
    if (some > 0) std::memcpy(call.recv + done, arena_->slot(call.root, rank_, number), some);
    post(channel.taken, number + 1);
    hit(Step::taken);
    done += some;
  } while (done < call.payload_bytes);
}

void Link::fail_message(uint64_t word, const Call& call) {
  break_link(GSEL_ERR_MISMATCH, call.root,
             fmt::format("rank {} called {}, rank {} called {}; make type and count agree", call.root,
                         describe(GSEL_COLLECTIVE_SEND, static_cast<gsel_dtype>(word >> 56), 0, rank_,
                                  word & ((uint64_t{1} << 56) - 1)),
                         rank_, describe(call.kind, call.dtype, 0, call.root, call.count)));
}

}  // namespace gsel::shm
