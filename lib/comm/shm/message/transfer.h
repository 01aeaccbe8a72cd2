// comm/shm/message/transfer.h: a message under way. Mailbox::advance advances it without waiting, so any number of
// messages can be under way together. Does not know who started it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "comm/shm/call/call.h"
#include "comm/shm/memory/arena.h"
#include "comm/shm/wait/driver.h"

namespace gsel::shm {

// Description of a message, from its first line.
struct Envelope {
  int32_t source = -1;
  int32_t tag = 0;
  gsel_dtype dtype = 0;
  uint64_t bytes = 0;
};

constexpr uint32_t kNoOffer = UINT32_MAX;

// A message that arrives in chunks: its destination and progress.
struct Stream {
  char* to = nullptr;
  uint64_t bytes = 0, moved = 0;
  uint32_t offer = kNoOffer;
  bool whole() const { return moved == bytes; }
};

// How the data of a longer message travels: through the slot of the line's number, or read by the receiver. A line of
// way `chunk` continues the message of the lines before it, through its slot.
enum class Way : uint32_t { slot, pointer, offset, remote, chunk };

// Payload of a line whose message is not in the line.
struct Route {
  Way way = Way::slot;
  uint32_t offer = kNoOffer;  // index of its offer in the channel, if the message does not fit one slot
  uint64_t bytes = 0;         // of the whole message
  uint64_t place = 0;         // address in the sender's process, or offset in the family's memory
};
// A message that no receive has matched yet: copied here, being copied here in chunks, or still with its sender.
struct SetAside {
  Envelope envelope;
  Route route;
  bool offered = false;
  Stream stream;  // the bytes copied here
  std::unique_ptr<char[]> data;
};

// One direction of a message. Sends to one rank take turns in the order started; matching.cc matches receives.
struct Half {
  enum class Stage : uint32_t { done, moving, offered, arriving };
  Stage stage = Stage::done;
  int32_t peer = -1;          // or GSEL_ANY_RANK
  int32_t tag = 0;            // or GSEL_ANY_TAG
  bool looked = false;        // in: has been matched against the messages set aside before
  bool announced = false;     // out: the first line is sent
  uint32_t offer = kNoOffer;  // out: index of the offer in the channel
  uint64_t turn = 0;
  uint64_t number = 0;  // of the call, in the recorder
  uint64_t bytes = 0;   // out: length of the message; in: of the buffer
  Stream stream;        // out: progress; in: of a message in chunks
};

struct Transfer {
  Call call;
  Half out, in;
  gsel_message* received = nullptr;
  uint64_t number = 0;               // of the call, in the recorder
  int64_t deadline_ns = 0;           // 0 until it waits long and a caller waits for its end
  DrivenRequest* request = nullptr;  // notified of the end
  bool is_open = false;              // see DrivenRequest::is_open
  std::unique_ptr<Error> failure;    // of this call only
};

// This rank's state of its two channels with another rank.
struct alignas(64) Peer {
  uint64_t sent = 0;      // lines
  uint64_t taken = 0;     // lines sent that the peer had taken at the last check
  uint64_t received = 0;  // lines
  uint64_t send_turns = 0, send_turn = 0;
  Stream* stream = nullptr;  // of the message whose chunks arrive in the next lines
  uint32_t offers = 0;       // this rank's offers in use, one bit each
  uint32_t left_behind = 0;  // subset of offers: in use by the receiver only
  uint32_t set_aside = 0;    // number of the peer's offers that this rank has set aside
  bool lines_reserved = false, slots_reserved = false;
  enum class Reading : uint8_t { open, yes, no };
  Reading reads_us = Reading::open;  // whether the peer can read this rank's memory with process_vm_readv
  Reading we_read = Reading::open;
};
static_assert(sizeof(Peer) == 64);

// The futex that a rank sleeps on. The rank listens until sleep() has returned.
struct Wakeup {
  RankBlock* block;
  uint32_t word;
  int64_t most_ns;
  void sleep() const noexcept;
};

// How long a rank has polled without progress.
struct Idle {
  int looks = 0;
  int yields = 0;
  int64_t since_ns = 0;
};

}  // namespace gsel::shm
