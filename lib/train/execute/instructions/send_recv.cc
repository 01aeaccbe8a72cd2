// train/execute/instructions/send_recv.cc: SEND and RECV: values and gradients between pipeline ranks. A received
// gradient is a contribution, like a backward's.
#include "base/os.h"
#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

gsel_collective call_of_message(const State& s, size_t position) {
  const gsel_instr& instr = s.program().step[position];
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool sends = instr.kind == GSEL_INSTR_SEND;
  const ArenaOperands::OfValue& operand = s.run->plan.operands(position).inputs[0];
  void* memory = s.at(instr.flags & GSEL_INSTR_GRADIENT ? operand.contribution() : operand.value);
  if (!memory)
    fail(GSEL_ERR_INTERNAL, "value \"{}\" has no memory at step instruction {}", s.model.values()[v].name, position);
  const auto elems = static_cast<uint64_t>(value_elems(s.model.values()[v], s.program().microbatches[mb].count));
  gsel_collective call = make_collective(sends ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV, sends ? memory : nullptr,
                                         sends ? nullptr : memory, elems, s.model.values()[v].dtype, 0, instr.peer);
  call.label = {s.model.values()[v].name.data(), s.model.values()[v].name.size()};
  return call;
}

// Counts the waiting time as exposed communication.
template <class Wait>
void waiting_for_messages(State& s, Wait&& wait) {
  const double began = os::now_seconds();
  wait();
  note_exposed(s, GSEL_AXIS_PIPELINE, os::now_seconds() - began);
}

}  // namespace

void begin_messages(State& s) {
  s.messages->begin(s.run->message_plan, [&s](size_t position) { return call_of_message(s, position); });
}

void launch_receives(State& s) {
  if (s.messages->has_launches(s.run->position))
    waiting_for_messages(s, [&] { s.messages->launch_receives(s.run->position); });
}

void send(State& s, const gsel_instr&) {
  if (s.run->message_plan.lane_of(s.run->position) < 0) return;
  waiting_for_messages(s, [&] { s.messages->send(s.run->position); });
}

void receive(State& s, const gsel_instr& instr) {
  if (s.run->message_plan.lane_of(s.run->position) < 0) return;
  waiting_for_messages(s, [&] { s.messages->wait_for(s.run->position); });
  if (instr.flags & GSEL_INSTR_GRADIENT) finish_contribution(s, s.operands().inputs[0], instr.value, instr.microbatch);
  s.messages->taken(s.run->position);
}

void settle_messages(State& s) {
  waiting_for_messages(s, [&] { s.messages->settle(); });
}

}  // namespace gsel::execute
