// train/execute/instructions/layer_redistribution.cc: the library's own layers, which change a value's placement on the
// sharing axis in forward, and that of its gradient in backward. If nothing has to be done, or a sum can be made in
// place, both values share memory (train/state/arena_plan.h).
#include <functional>

#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

void redistribute(State& s, gsel_instr_kind poster, const RedistributionJob& job) {
  const Value& value = s.model.values()[job.from];
  auto make = [&](gsel_collective call) {
    call.label = {value.name.data(), value.name.size()};
    call_now(s, poster, s.sharing_axis(), call);
  };
  s.redistributor.run(job, std::ref(make));  // allocates nothing
}

void redistribute_value(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.inputs.front(), to = layer.outputs.front(), mb = instr.microbatch;
  const auto& values = s.model.values();
  redistribute(s, GSEL_FORWARD,
               {forward_redistribution(values[from].placement, values[to].placement), from, to,
                s.program().microbatches[mb].count, s.at(s.operands().inputs[0].value),
                s.at(s.operands().outputs[0].value), s.at(s.operands().packing)});
}

// Only this layer reads the output's gradient. If that becomes the input's gradient in place, it is the first
// contribution as it is, or is added to earlier ones.
void redistribute_gradient(State& s, const gsel_instr& instr, const Layer& layer) {
  const int32_t from = layer.outputs.front(), to = layer.inputs.front(), mb = instr.microbatch;
  const auto& values = s.model.values();
  const Redistribution redistribution = backward_redistribution(values[to].placement, values[from].placement);
  const ArenaOperands& operands = s.operands();
  void* src = s.at(operands.outputs[0].gradient);
  const bool in_place = stays_in_place(redistribution, s.axis_size(s.sharing_axis()));
  void* dst = in_place ? src : s.at(operands.inputs[0].contribution());
  redistribute(s, GSEL_BACKWARD_INPUT,
               {redistribution, from, to, s.program().microbatches[mb].count, src, dst, s.at(operands.packing)});
  if (!in_place) return finish_contribution(s, operands.inputs[0], to, mb);
  void* sum = s.at(operands.inputs[0].gradient);
  if (sum == src) return;
  s.add(sum, src, values[to].dtype, static_cast<uint64_t>(value_elems(values[to], s.program().microbatches[mb].count)));
}

}  // namespace

void redistribute_layer(State& s, const gsel_instr& instr) {
  const Layer& layer = s.layer_of(instr);
  const bool backward = instr.kind == GSEL_BACKWARD_INPUT;
  if (!s.is_empty(instr.microbatch))
    backward ? redistribute_gradient(s, instr, layer) : redistribute_value(s, instr, layer);
  if (s.is_at_last_backward()) s.backward_done.record_compute();
}

}  // namespace gsel::execute
