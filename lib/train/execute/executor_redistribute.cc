// train/execute/executor_redistribute.cc: the library's own layers: a value is brought from one form on the tensor axis
// to another, forward, and its gradient back. Where nothing has to be done, or a sum can be made in place, the plan has
// both in the same memory (train/memory/arena_plan.h).
#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {

void Executor::convert(const gsel_instr& instr) {
  const Layer& layer = layer_of(instr);
  const bool backward = instr.kind == GSEL_BACKWARD_INPUT;
  if (!is_empty(instr.microbatch)) backward ? redistribute_gradient(instr, layer) : convert_value(instr, layer);
  if (static_cast<int32_t>(position_) == run_plan_->last_backward) backward_done_.record(nullptr);
}

void Executor::convert_value(const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.inputs.front(), to = layer.outputs.front(), mb = instr.microbatch;
  const auto& values = model_.values();
  run_conversion(GSEL_FORWARD, {forward_redistribution(values[from].placement, values[to].placement), from, to,
                                program().microbatches[mb].count, at(plan().value(position_, from, mb)),
                                at(plan().value(position_, to, mb)), at(plan().packing(position_))});
}

// The gradient of the output goes no further than this. Where it is that of the input, or is summed to it, it becomes
// the first contribution as it stands, or is added to those that came before.
void Executor::redistribute_gradient(const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.outputs.front(), to = layer.inputs.front(), mb = instr.microbatch;
  const auto& values = model_.values();
  const Redistribution redistribution = backward_redistribution(values[to].placement, values[from].placement);
  void* src = at(plan().gradient(position_, from, mb));
  const bool in_place = stays_in_place(redistribution, axis_size(sharing_axis()));
  void* dst = in_place ? src : contribution_place(to, mb);
  run_conversion(GSEL_BACKWARD_INPUT,
                 {redistribution, from, to, program().microbatches[mb].count, src, dst, at(plan().packing(position_))});
  if (!in_place) return finish_contribution(to, mb);
  void* sum = at(plan().gradient(position_, to, mb));
  if (sum == src) return;
  backend_->run(&gsel_backend_v1::add, sum, static_cast<const void*>(src), values[to].dtype,
                static_cast<uint64_t>(value_elems(values[to], program().microbatches[mb].count)),
                static_cast<gsel_stream*>(nullptr));
}

void Executor::run_conversion(gsel_instr_kind poster, const RedistributionJob& job) {
  const Value& value = model_.values()[job.from];
  auto make = [&](gsel_collective call) {
    call.label = {value.name.data(), value.name.size()};
    call_now(poster, sharing_axis(), call);
  };
  redistributor_.run(job, std::ref(make));  // which takes no memory
}

}  // namespace gsel
