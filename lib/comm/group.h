// comm/group.h: calls that run together: those of one communicator, and those of several communicators at the same
// time. Does not know how a communicator runs them.
#pragma once

#include <gsel/comm.h>

#include <span>

namespace gsel {

class Communicator;

struct GroupCall {
  Communicator* communicator;
  gsel_collective call;
};

// Checks all, then runs all; throws the first failure.
void run_group(std::span<GroupCall> calls);

}  // namespace gsel
