// train/execute/instructions.cc: dispatches instructions by kind.
#include "train/execute/instructions.h"

#include "program/words/words.h"

namespace gsel::execute {
namespace {

using Handler = bool (*)(State&, const gsel_instr&);
using Handlers = std::array<Handler, kInstrKinds>;

template <void (*run)(State&, const gsel_instr&)>
bool at_once(State& s, const gsel_instr& instr) {
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
  all[GSEL_INSTR_SCATTER] = at_once<scatter_or_gather>;
  all[GSEL_INSTR_GATHER] = at_once<scatter_or_gather>;
  all[GSEL_INSTR_SEND] = at_once<send>;
  all[GSEL_INSTR_RECV] = at_once<receive>;
  all[GSEL_INSTR_BROADCAST] = at_once<broadcast_params>;
  all[GSEL_INSTR_ALLGATHER] = at_once<allgather_params>;
  all[GSEL_INSTR_RELEASE] = at_once<release_params>;
  all[GSEL_INSTR_ALLREDUCE] = at_once<allreduce_gradients>;
  all[GSEL_INSTR_REDUCE] = at_once<reduce_gradients>;
  all[GSEL_INSTR_REDUCE_SCATTER] = at_once<reduce_scatter_gradients>;
  all[GSEL_INSTR_WAIT] = at_once<wait>;
  all[GSEL_INSTR_LOSS_ALLREDUCE] = at_once<allreduce_loss>;
  all[GSEL_INSTR_OVERFLOW] = at_once<find_overflow>;
  all[GSEL_INSTR_NORM] = at_once<norm>;
  all[GSEL_INSTR_ALLREDUCE_PARTIAL] = at_once<allreduce_partial>;
  all[GSEL_INSTR_ALLREDUCE_TIED] = at_once<allreduce_tied>;
  all[GSEL_INSTR_STEP] = at_once<step_optimizer>;
  all[GSEL_INSTR_POST_VALIDATE] = at_once<done_before>;  // by run_instr, which may start the step over
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
