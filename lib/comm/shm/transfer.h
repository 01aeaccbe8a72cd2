// comm/shm/transfer.h: a message under way. It goes on by Link::advance, which never waits, so any number of them go on
// together. Refuses to know who started it.
#pragma once

#include <cstdint>

#include "comm/shm/plan.h"

namespace gsel::shm {

struct Work;

// One direction of it. Those to one rank, and those from one rank, take turns in the order started.
struct Half {
  enum class Stage : uint32_t { done, moving, offered };
  Stage stage = Stage::done;
  int32_t peer = -1;
  uint64_t turn = 0;
  uint64_t word = 0;    // type and count, as in its lines
  uint64_t number = 0;  // of the call, in the recorder
  uint64_t bytes = 0;
  uint64_t moved = 0;  // bytes
  uint64_t line = 0;   // offered: number of the line that says where the data stands
};

struct Transfer {
  Call call;
  Half out, in;
  uint64_t number = 0;      // of the call, in the recorder
  int64_t deadline_ns = 0;  // 0 until it waits long and its end is asked for
  Work* work = nullptr;     // to be told of the end
};

// What a rank knows of its two channels with another.
struct alignas(64) Peer {
  uint64_t sent = 0;      // lines
  uint64_t taken = 0;     // of them, when last looked
  uint64_t received = 0;  // lines
  uint64_t send_turns = 0, send_turn = 0;
  uint64_t receive_turns = 0, receive_turn = 0;
  bool lines_reserved = false, slots_reserved = false;
  enum class Reading : uint8_t { open, yes, no };
  Reading reads_us = Reading::open;  // the other, with process_vm_readv
  Reading we_read = Reading::open;
};

struct RankBlock;

// What a rank sleeps on, which listens until it has slept.
struct Bell {
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
