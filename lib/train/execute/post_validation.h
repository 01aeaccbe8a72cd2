// train/execute/post_validation.h: an optimistic step: what it was made with, the all-reduces over the pipeline ranks
// that are under way, and the result of the step before. Does not know what follows if that step was wrong.
#pragma once

#include <optional>

#include "comm/request.h"
#include "train/execute/non_finite.h"

namespace gsel {

// A number that ranks of the pipeline bring together asynchronously, while they go on with what follows.
struct OptimisticNumber {
  bool is_open = false;
  double value = 0;                      // this rank's; then that of all
  std::optional<CallRequest> under_way;  // nothing where the pipeline has one rank
};

struct Validation {
  bool is_open = false;  // a step has been made that is to be validated
  OptimisticNumber squares, overflow;
  double weight = 0;          // of the open step
  NonFiniteOrigin origin;     // the same
  gsel_comm_count counted{};  // of the calls that brought numbers so far
  // The last validated step; -1: none yet.
  int64_t step = -1;
  double gradient_norm = 0;
  bool overflowed = false;
};

}  // namespace gsel
