// comm/shm/protocol.h: the ways by which the bytes of a call can travel, and the choice among them. Does not know how
// they work.
#pragma once

namespace gsel::shm {

enum class Protocol { alone, line, slots, direct, single_copy, staged };
const char* protocol_name(Protocol protocol);  // as gsel_comm_explain tells it

// The way a call takes, and why.
struct Choice {
  Protocol protocol;
  const char* reason;
};

}  // namespace gsel::shm
