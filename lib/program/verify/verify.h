// program/verify/verify.h: checks, before anything runs, that the programs of a job together do what a training step
// must do.
#pragma once

#include <span>

#include "program/job.h"

namespace gsel {

enum class Purpose : uint8_t {
  training,
  evaluation,  // forwards and the loss alone (program/forward_only.h)
};

// Throws GSEL_ERR_PROGRAM naming rank, instruction and, for programs read from text, line.
void verify(const Job& job, Purpose purpose = Purpose::training);
void verify(std::span<const Program* const> programs, Purpose purpose = Purpose::training);
void verify(std::span<const Program> programs, Purpose purpose = Purpose::training);

}  // namespace gsel
