// comm/shm/message/transfer.h: a message under way. Mailbox::advance moves it on and never waits, so any number of
// messages can be under way together. Does not know who started it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/error.h"
#include "comm/shm/call/plan.h"

namespace gsel::shm {

struct EngineRequest;

// What a message is, as its first line says.
struct Envelope {
  int32_t source = -1;
  int32_t tag = 0;
  gsel_dtype dtype = 0;
  uint64_t bytes = 0;
};

constexpr uint32_t kNoOffer = UINT32_MAX;

// A message that arrives in pieces: where it goes, and how far it is.
struct Stream {
  char* to = nullptr;
  uint64_t bytes = 0, moved = 0;
  uint32_t offer = kNoOffer;
  bool whole() const { return moved == bytes; }
};

// How the data of a longer message travels: through the slot of the line's number, or read by the receiver. A line of
// way `piece` goes on with the message before it, through its slot.
enum class Way : uint32_t { slot, pointer, offset, remote, piece };

// In the payload of a line whose message stands elsewhere.
struct Route {
  Way way = Way::slot;
  uint32_t offer = kNoOffer;  // its place in the channel, where the message does not fit one slot
  uint64_t bytes = 0;         // of the whole message
  uint64_t place = 0;         // address in the sender's process, or offset in the family's memory
};
// A message that no receive has asked for yet: here whole or on its way, or still with its sender.
struct SetAside {
  Envelope envelope;
  Route route;
  bool offered = false;
  Stream stream;  // what is here
  std::unique_ptr<char[]> data;
};

// One direction of it. Those to one rank take turns in the order started; which message a receive gets, matching.cc
// says.
struct Half {
  enum class Stage : uint32_t { done, moving, offered, arriving };
  Stage stage = Stage::done;
  int32_t peer = -1;          // GSEL_ANY_RANK: of a receive from any
  int32_t tag = 0;            // GSEL_ANY_TAG: of a receive of any
  bool looked = false;        // in: at the messages that were set aside before it came
  bool announced = false;     // out: its first line is sent
  uint32_t offer = kNoOffer;  // out: its place in the channel
  uint64_t turn = 0;
  uint64_t number = 0;  // of the call, in the recorder
  uint64_t bytes = 0;   // out: of the message; in: room for it
  Stream stream;        // out: moved so far; in: of a message in pieces
};

struct Transfer {
  Call call;
  Half out, in;
  gsel_message* received = nullptr;
  uint64_t number = 0;               // of the call, in the recorder
  int64_t deadline_ns = 0;           // 0 until it waits long and somebody waits for its end
  EngineRequest* request = nullptr;  // to be told of the end
  bool is_open = false;              // as that says
  std::unique_ptr<Error> failure;    // of this call alone
};

// What a rank knows of its two channels with another.
struct alignas(64) Peer {
  uint64_t sent = 0;      // lines
  uint64_t taken = 0;     // of them, when last looked
  uint64_t received = 0;  // lines
  uint64_t send_turns = 0, send_turn = 0;
  Stream* stream = nullptr;  // whose pieces the next lines are
  uint32_t offers = 0;       // places of ours that are in use, a bit for each
  uint32_t left_behind = 0;  // of them, those that only the receiver has not done with
  uint32_t set_aside = 0;    // of the other's offers, by us
  bool lines_reserved = false, slots_reserved = false;
  enum class Reading : uint8_t { open, yes, no };
  Reading reads_us = Reading::open;  // the other, with process_vm_readv
  Reading we_read = Reading::open;
};
static_assert(sizeof(Peer) == 64);

struct RankBlock;

// What a rank sleeps on, which listens until it has slept.
struct Wakeup {
  RankBlock* block;
  uint32_t word;
  int64_t most_ns;
  void sleep() const noexcept;
};

// How long a rank has looked in vain.
struct Idle {
  int looks = 0;
  int yields = 0;
  int64_t since_ns = 0;
};

}  // namespace gsel::shm
