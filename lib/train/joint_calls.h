// train/joint_calls.h: the calls of a trainer or pipeline that all ranks make together, and what follows if one rank
// makes another call than the others.
#pragma once

#include "train/execute/executor.h"

namespace gsel {

enum class JointCall : uint8_t {
  step = 1,
  evaluate,
  infer,
  read_param,
  read_gradient,
  set_learning_rate,
  run_pipeline
};

// Before this rank's part of the call begins. Where another rank is known to have begun another call, or the same call
// with another argument, everything ends on every rank with GSEL_ERR_MISMATCH, which tells both.
//   argument  of evaluate the first sample, of infer the value, of read_* the parameter, of set_learning_rate its bits,
//             of run_pipeline what to run
void begin_joint_call(Communicator& comm, Executor& executor, JointCall call, int64_t argument = 0);

}  // namespace gsel
