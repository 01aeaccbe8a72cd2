// train/execute/executor_messages.cc: SEND and RECV: values and gradients on their way between places of a pipeline. A
// gradient that comes counts as a contribution, as a backward's does.
#include "base/os.h"
#include "train/execute/executor.h"
#include "train/memory/views.h"

namespace gsel {

gsel_collective Executor::call_of_message(size_t position) const {
  const gsel_instr& instr = program().step[position];
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool sends = instr.kind == GSEL_INSTR_SEND;
  uint64_t offset = 0;
  if (!(instr.flags & GSEL_INSTR_GRADIENT)) {
    offset = plan().value(position, v, mb);
  } else {
    offset = plan().scratch(position, v, mb);
    if (sends || offset == ArenaPlan::kNone) offset = plan().gradient(position, v, mb);
  }
  if (offset == ArenaPlan::kNone)
    fail(GSEL_ERR_INTERNAL, "value \"{}\" has no place at step instruction {}", model_.values()[v].name, position);
  const auto elems = static_cast<uint64_t>(value_elems(model_.values()[v], program().microbatches[mb].count));
  gsel_collective call =
      make_collective(sends ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV, sends ? at(offset) : nullptr,
                      sends ? nullptr : at(offset), elems, model_.values()[v].dtype, 0, instr.peer);
  call.label = {model_.values()[v].name.data(), model_.values()[v].name.size()};
  return call;
}

// What waiting takes is exposed communication.
template <class Wait>
void Executor::waiting_for_messages(Wait&& wait) {
  const double began = os::now_seconds();
  wait();
  note_exposed(GSEL_AXIS_PIPELINE, os::now_seconds() - began);
}

void Executor::begin_messages() {
  messages_.begin(run_plan_->messages, [this](size_t position) { return call_of_message(position); });
}

void Executor::send(const gsel_instr&) {
  if (run_plan_->messages.lane_of(position_) < 0) return;
  waiting_for_messages([&] { messages_.send(position_); });
}

void Executor::receive(const gsel_instr& instr) {
  if (run_plan_->messages.lane_of(position_) < 0) return;
  waiting_for_messages([&] { messages_.wait_for(position_); });
  if (instr.flags & GSEL_INSTR_GRADIENT) finish_contribution(instr.value, instr.microbatch);
  messages_.taken(position_);
}

void Executor::settle_messages() {
  waiting_for_messages([&] { messages_.settle(); });
}

}  // namespace gsel
