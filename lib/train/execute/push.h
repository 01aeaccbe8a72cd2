// train/execute/push.h: runs what is under way in an executor by calling the model's callbacks on the calling thread.
// Does not know what is computed.
#pragma once

#include "train/execute/executor.h"

namespace gsel {

// Who fills inputs.
struct DataSource {
  gsel_data_fn fill = nullptr;
  void* user_data = nullptr;
};

// Until what is under way, or a new step, has ended. Throws what the executor does.
void push(Executor& executor, const Model& model, const DataSource& data);

// The first layer without callbacks, or nullptr.
const Layer* find_pull_only(const Model& model);

}  // namespace gsel
