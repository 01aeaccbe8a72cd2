// device/formulas/low_rank_needs.h: the arguments of a low-rank step, checked before its kernels are enqueued. Does not
// know devices.
#pragma once

#include "device/formulas/optimizer_needs.h"

namespace gsel {

inline StepProblem problem_of(const gsel_low_rank_step& step) {
  if (step.kind < GSEL_LOW_RANK_START || step.kind > GSEL_LOW_RANK_FINISH)
    return {GSEL_ERR_UNSUPPORTED, "low-rank step " + std::to_string(step.kind) + " is unknown"};
  if (step.rows < 1 || step.cols < 1 || step.rank < 1)
    return {GSEL_ERR_ARG, "a low-rank step of " + std::to_string(step.rows) + " rows, " + std::to_string(step.cols) +
                              " columns and rank " + std::to_string(step.rank) + "; expected 1 or more of each"};
  const bool starts = step.kind == GSEL_LOW_RANK_START, right = step.kind == GSEL_LOW_RANK_RIGHT;
  const struct {
    const char* name;
    bool missing;
  } arrays[] = {{"matrix", !starts && !step.matrix},
                {"left", !starts && !step.left},
                {"right", !step.right},
                {"error", !starts && !right && !step.error},
                {"old_error", !starts && !right && !step.old_error}};
  for (const auto& array : arrays)
    if (array.missing)
      return {GSEL_ERR_ARG, "low-rank step " + std::to_string(step.kind) + " needs " + array.name + " and it is NULL"};
  return {GSEL_OK, ""};
}

}  // namespace gsel
