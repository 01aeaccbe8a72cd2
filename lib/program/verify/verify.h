// program/verify/verify.h: checks, before anything runs, that the programs of a job together do what a training step
// must do; and finds how many messages have to be under way for them.
#pragma once

#include <span>

#include "program/job.h"

namespace gsel {

enum class Purpose : uint8_t {
  training,
  evaluation,  // forwards and the loss alone (program/forward_programs.h)
};

// Throws GSEL_ERR_PROGRAM naming rank, instruction and, for programs read from text, line.
void verify(const Job& job, Purpose purpose = Purpose::training);
void verify(std::span<const Program* const> programs, Purpose purpose = Purpose::training);
void verify(std::span<const Program> programs, Purpose purpose = Purpose::training);

// The least of 2, 4, 8, ... for Program::transfers, the number of messages that may be under way from one rank to
// another, with which the programs of a job come to their end: then no schedule that verifies can deadlock. It is also
// enough for the same programs without some of their messages, since each message then waits for one that was sent
// earlier. GSEL_ERR_PROGRAM where no number is enough, naming a rank and what it waits for.
int32_t enough_transfers(const Job& job);

}  // namespace gsel
