// device/formulas/step_needs.h: the arguments that each kind of optimizer step, a low-rank step and a reduction need,
// checked before their kernels are enqueued. Does not know devices.
#pragma once

#include <gsel/device.h>
#include <gsel/error.h>

#include <string>

namespace gsel {

struct StepNeeds {
  const char* name;  // nullptr: unknown kind
  int states;
  bool scales;  // of 8-bit state
  bool counts;  // needs the step number for bias correction
};

inline StepNeeds needs_of(const gsel_optimizer_step& step) {
  switch (step.kind) {
    case GSEL_OPTIMIZER_SGD:
      return {"sgd", step.momentum != 0, false, false};
    case GSEL_OPTIMIZER_SIGN_SGD:
      return {"sign_sgd", 0, false, false};
    case GSEL_OPTIMIZER_ADAMW:
      return {"adamw", 2, false, true};
    case GSEL_OPTIMIZER_ADAM:
      return {"adam", 2, false, true};
    case GSEL_OPTIMIZER_LION:
      return {"lion", 1, false, false};
    case GSEL_OPTIMIZER_ADAMW_8BIT:
      return {"adamw_8bit", 2, true, true};
    default:
      return {nullptr, 0, false, false};
  }
}

struct StepProblem {
  gsel_status status;  // GSEL_OK: no problem
  std::string text;
};

inline StepProblem problem_of(const gsel_optimizer_step& step) {
  const StepNeeds needs = needs_of(step);
  if (!needs.name) return {GSEL_ERR_UNSUPPORTED, "optimizer kind " + std::to_string(step.kind) + " is unknown"};
  const struct {
    const char* name;
    bool missing;
  } arrays[] = {{"state0", needs.states > 0 && !step.state0},
                {"state1", needs.states > 1 && !step.state1},
                {"scale0", needs.scales && !step.scale0},
                {"scale1", needs.scales && !step.scale1}};
  for (const auto& array : arrays)
    if (array.missing && step.count > 0)
      return {GSEL_ERR_ARG, std::string("optimizer step ") + needs.name + " on " + std::to_string(step.count) +
                                " elements needs " + array.name + " and it is NULL"};
  if (needs.counts && step.t < 1)
    return {GSEL_ERR_ARG, std::string(needs.name) + " step number is " + std::to_string(step.t) + "; it counts from 1"};
  if (step.param16 && step.param16_dtype != GSEL_F16 && step.param16_dtype != GSEL_BF16)
    return {GSEL_ERR_UNSUPPORTED, std::string(needs.name) +
                                      " rounds parameters to f16 (9) or bf16 (10); param16_dtype is " +
                                      std::to_string(step.param16_dtype)};
  return {GSEL_OK, ""};
}

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

// Arguments of gsel_device_v1.reduce.
struct Reduction {
  void* dst;
  const void* const* srcs;
  int32_t n;
  gsel_dtype dtype;
  gsel_op op;
  uint64_t count;
};

// Whether the operation is one of the device's, and which types have it.
inline StepProblem problem_of_op(gsel_op op, gsel_dtype dtype) {
  const std::string asked = "a reduction by op " + std::to_string(op);
  if (op == GSEL_SCALED_SUM || op >= GSEL_OP_USER)
    return {GSEL_ERR_UNSUPPORTED, asked + (op == GSEL_SCALED_SUM ? ", scaled sum," : ", an operation of the program,") +
                                      " is not supported on a device; reduce in memory of the host"};
  if (op < GSEL_SUM || op > GSEL_BXOR) return {GSEL_ERR_ARG, asked + ", which is unknown; use GSEL_SUM to GSEL_BXOR"};
  const bool is_of_bits = op >= GSEL_BAND, is_floating = dtype >= GSEL_F16 && dtype <= GSEL_F8E5M2;
  if (is_of_bits && is_floating)
    return {GSEL_ERR_ARG, asked + " of floating-point type " + std::to_string(dtype) +
                              "; operations on bits are for integers and bool"};
  if (op == GSEL_AVG && dtype == GSEL_BOOL)
    return {GSEL_ERR_ARG, "a reduction by avg of bool; use sum for or, prod for and"};
  return {GSEL_OK, ""};
}

inline StepProblem problem_of(const Reduction& r) {
  if (r.n < 1 || r.n > GSEL_REDUCE_SOURCES)
    return {GSEL_ERR_ARG,
            "a reduction of " + std::to_string(r.n) + " sources; use 1 to " + std::to_string(GSEL_REDUCE_SOURCES)};
  if (r.dtype < GSEL_I8 || r.dtype > GSEL_BOOL)
    return {GSEL_ERR_ARG,
            "a reduction of type " + std::to_string(r.dtype) + ", which is unknown; use GSEL_I8 to GSEL_BOOL"};
  if (const StepProblem problem = problem_of_op(r.op, r.dtype); problem.status) return problem;
  if (r.count == 0) return {GSEL_OK, ""};
  const std::string of_count = "a reduction of " + std::to_string(r.count) + " elements";
  if (!r.dst || !r.srcs) return {GSEL_ERR_ARG, of_count + " needs dst and srcs and one is NULL"};
  for (int32_t q = 0; q < r.n; ++q)
    if (!r.srcs[q]) return {GSEL_ERR_ARG, of_count + " needs srcs[" + std::to_string(q) + "] and it is NULL"};
  return {GSEL_OK, ""};
}

}  // namespace gsel
