// comm/shm/join/messages.h: the messages of ranks while they join. Rank r sends hello, then ready. Rank 0 sends the
// arena, then the descriptors of all processes in batches ("lives"), then go. Either side may send "failed" at any
// point instead. Rank r sends "late" after its deadline, and rank 0 answers with the ranks it waits for.
#pragma once

#include <gsel/error.h>

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "comm/shm/join/socket.h"

namespace gsel::shm {

constexpr uint64_t kHelloMagic = 0x6c656c6c6f487367;
constexpr uint32_t kProtocol = 7;
constexpr size_t kDeviceBytes = 96;

struct Hello {
  uint64_t magic = kHelloMagic;
  uint32_t protocol = kProtocol;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t pid = 0;
  uint64_t process = 0;            // random number of the process; equal for ranks that are its threads
  uint64_t witness = 0;            // address of that number
  uint64_t cpus[16] = {};          // processors the rank may use
  int32_t order = 0;               // GSEL_ORDER_*
  uint32_t barrier = 0;            // 1: others can make this process pass a barrier
  uint32_t accelerator = 0;        // 1: the rank names one
  char device[kDeviceBytes] = {};  // identity of the device the rank computes on; empty: unknown
};

enum class Say : uint32_t { failed = 1, arena, lives, go, ready, late };

struct Message {
  Say say = Say::failed;
  gsel_status code = GSEL_OK;  // of failed
  int32_t about = -1;
  uint32_t first = 0;  // of lives: first rank and number; of late: milliseconds waited
  uint32_t count = 0;
  struct Life {
    int32_t pid;
    uint64_t process;
    uint64_t witness;
  } life[kMostFds] = {};
  char text[512] = {};
};

inline Message failed_message(const Error& error) {
  Message message;
  message.say = Say::failed;
  message.code = error.code();
  message.about = error.rank();
  std::strncpy(message.text, error.what(), sizeof message.text - 1);
  return message;
}

// Adds the rank to an error that names no rank.
inline Error named_error(const Error& error, int32_t rank) {
  if (error.rank() >= 0) return error;
  return Error(error.code(), fmt::format("rank {}: {}", rank, error.what())).about_rank(rank);
}

// The code comes from another process and may be no error code.
inline Error error_of(const Message& message) {
  if (message.code >= 0)
    return Error(GSEL_ERR_VERSION, "a joining rank failed without saying why; all ranks must use one libgsel")
        .about_rank(message.about);
  return Error(message.code, one_line({message.text, strnlen(message.text, sizeof message.text)}))
      .about_rank(message.about);
}

}  // namespace gsel::shm
