// train/execute/instructions.cc: dispatches instructions by kind.
#include "train/execute/instructions.h"

#include "program/words/words.h"

namespace gsel::execute {
namespace {

using Handler = bool (*)(State&, const gsel_instr&);
using Handlers = std::array<Handler, kInstrKinds>;

template <void (*run)(State&, const gsel_instr&)>
bool synchronous(State& s, const gsel_instr& instr) {
  run(s, instr);
  return false;
}

void done_before(State&, const gsel_instr&) {}

constexpr Handlers make_handlers() {
  Handlers all{};
  all[GSEL_INPUT] = hand_out_input;
  all[GSEL_FORWARD] = hand_out_layer;
  all[GSEL_INSTR_RECOMPUTE] = hand_out_layer;
  all[GSEL_BACKWARD_INPUT] = hand_out_layer;
  all[GSEL_BACKWARD_WEIGHT] = hand_out_layer;
  all[GSEL_BACKWARD] = hand_out_layer;
  all[GSEL_INSTR_SCATTER] = synchronous<scatter_or_gather>;
  all[GSEL_INSTR_GATHER] = synchronous<scatter_or_gather>;
  all[GSEL_INSTR_SEND] = synchronous<send>;
  all[GSEL_INSTR_RECV] = synchronous<receive>;
  all[GSEL_INSTR_BROADCAST] = synchronous<broadcast_params>;
  all[GSEL_INSTR_ALLGATHER] = synchronous<allgather_params>;
  all[GSEL_INSTR_RELEASE] = synchronous<release_params>;
  all[GSEL_INSTR_ALLREDUCE] = synchronous<allreduce_gradients>;
  all[GSEL_INSTR_REDUCE] = synchronous<reduce_gradients>;
  all[GSEL_INSTR_REDUCE_SCATTER] = synchronous<reduce_scatter_gradients>;
  all[GSEL_INSTR_WAIT] = synchronous<wait>;
  all[GSEL_INSTR_LOSS_ALLREDUCE] = synchronous<allreduce_loss>;
  all[GSEL_INSTR_OVERFLOW] = synchronous<find_overflow>;
  all[GSEL_INSTR_NORM] = synchronous<norm>;
  all[GSEL_INSTR_ALLREDUCE_PARTIAL] = synchronous<allreduce_partial>;
  all[GSEL_INSTR_ALLREDUCE_TIED] = synchronous<allreduce_tied>;
  all[GSEL_INSTR_STEP] = synchronous<step_optimizer>;
  all[GSEL_INSTR_POST_VALIDATE] = synchronous<done_before>;  // by run_instr, which may start the step over
  return all;
}

constexpr Handlers kHandlers = make_handlers();

}  // namespace

bool run_instr(State& s, const gsel_instr& instr) {
  const auto kind = static_cast<size_t>(instr.kind);
  if (kind >= kHandlers.size() || !kHandlers[kind])
    fail(GSEL_ERR_INTERNAL, "instruction \"{}\" reached the executor", to_text(s.program(), instr));
  return kHandlers[kind](s, instr);
}

void begin_first_instr(State& s) {
  s.run->start_over();
  s.numbers.clear();
  forget_async(s);
  begin_messages(s);
}

}  // namespace gsel::execute
