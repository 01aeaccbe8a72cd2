// train/joint_calls.h: calls of a trainer or pipeline that all ranks must make together; detects a rank that makes
// another call.
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
  save,
  read_state,
  load,
  load_weights,
  export_weights,
  run_pipeline
};

// Call before this rank's part begins. If another rank is known to have begun another call, or the same call with
// another argument, everything ends on every rank with GSEL_ERR_MISMATCH, whose message names both calls.
//   argument  evaluate: the first sample; infer: the value; read_*: the parameter; set_learning_rate: its
//             bits; run_pipeline: what to run
void begin_joint_call(Communicator& comm, Executor& executor, JointCall call, int64_t argument = 0);

}  // namespace gsel
