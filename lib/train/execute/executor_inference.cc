// train/execute/executor_inference.cc: forward alone up to a value, between steps. See Executor::begin_inference.
#include "base/foreign.h"
#include "train/execute/executor.h"

namespace gsel {

std::unique_ptr<Executor::RunPlan> Executor::make_run_plan(const Program& program) const {
  return std::make_unique<RunPlan>(model_, program, params_);
}

void Executor::begin_inference(const RunPlan& run_plan, const CountedMemory& memory, uint64_t rng_key) {
  if (broken_) fail(GSEL_ERR_STATE, "an earlier step failed; free the trainer");
  inference_ = Inference{&memory, rng_key, std::nullopt};
  begin(run_plan, 0);
}

std::optional<Error> Executor::end_inference() {
  std::optional<Error> failure = std::move(inference_->failure);
  inference_.reset();
  run_plan_ = &training_;
  return failure;
}

// The first one counts.
void Executor::keep_failure(gsel_status status, std::string_view message) {
  const gsel_instr& instr = program().step[position_];
  const std::string what = work_kind_ == GSEL_INPUT ? fmt::format("input \"{}\"", model_.values()[instr.value].name)
                                                    : fmt::format("layer \"{}\"", layer_of(instr).name);
  inference_->failure.emplace(GSEL_ERR_CALLBACK,
                              fmt::format("{} failed in an inference: {}", what, reason_of(status, message)));
}

// Those that are left, so that others do not wait: what is in them no longer matters.
void Executor::go_through_phases(const gsel_instr& instr) {
  for (size_t k = phase_ > 0 ? phase_ - 1 : 0; k < phases_of(instr).size(); ++k) reduce_phase(instr, k);
  phase_ = 0;
}

void* Executor::left_by(const RunPlan& run_plan, const CountedMemory& memory, int32_t value) const {
  for (size_t position = run_plan.program.step.size(); position-- > 0;)
    if (const uint64_t offset = run_plan.plan.value(position, value, 0); offset != ArenaPlan::kNone)
      return memory.at(offset);
  return nullptr;
}

double Executor::largest_of_replica(double mine) {
  for (gsel_axis axis : {sharing_axis(), GSEL_AXIS_PIPELINE}) combine_now(0, axis, {&mine, 1}, GSEL_MAX);
  return mine;
}

}  // namespace gsel
