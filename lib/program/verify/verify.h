// program/verify/verify.h: checks, before anything runs, that the programs of a job together do a correct training
// step, and computes how many concurrent messages they need.
#pragma once

#include <span>

#include "program/job.h"

namespace gsel {

enum class Purpose : uint8_t {
  training,
  evaluation,  // forwards and loss only (program/forward_programs.h)
};

// Throws GSEL_ERR_PROGRAM naming rank, instruction and, for programs read from text, the line.
void verify(const Job& job, Purpose purpose = Purpose::training);
void verify(std::span<const Program* const> programs, Purpose purpose = Purpose::training);
void verify(std::span<const Program> programs, Purpose purpose = Purpose::training);

// The least of 2, 4, 8, ... for Program::transfers, the number of messages under way from one rank to another, with
// which the job's programs end. So no schedule that verifies can deadlock. It is also enough for the same programs
// without some messages, since each message then waits for an earlier one. GSEL_ERR_PROGRAM if no number is enough,
// naming a rank and what it waits for.
int32_t enough_transfers(const Job& job);

}  // namespace gsel
