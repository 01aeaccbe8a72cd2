// train/execute/instructions.cc: runs an instruction by the task of its kind.
#include "train/execute/instructions.h"

#include "train/execute/graphs.h"
#include "train/execute/step_numbers.h"

namespace gsel::execute {

Outcome run_instr(State& s, const gsel_instr& instr) {
  if (s.graphs->takes(s, instr) || s.step_numbers->takes(s, instr)) return Outcome::done;
  const InstrRow& row = instr_row(instr.kind);
  switch (row.task) {
    case InstrTask::input:
      return hand_out_input(s, instr) ? Outcome::handed_out : Outcome::done;
    case InstrTask::forward:
    case InstrTask::backward:
      return hand_out_layer(s, instr) ? Outcome::handed_out : Outcome::done;
    case InstrTask::message:
      row.is_send() ? send(s, instr) : receive(s, instr);
      break;
    case InstrTask::scatter_gather:
      scatter_or_gather(s, instr);
      break;
    case InstrTask::params:
      make_params_whole(s, instr);
      break;
    case InstrTask::gradients:
      reduce_gradients(s, instr);
      break;
    case InstrTask::wait:
      wait_bucket(s, instr.bucket);
      break;
    case InstrTask::release:
      release_params(s, instr);
      break;
    case InstrTask::sum_stepped:
      sum_stepped(s, instr);
      break;
    case InstrTask::loss:
      allreduce_loss(s, instr);
      break;
    case InstrTask::check:
      row.peers == InstrPeers::norm ? norm(s, instr) : find_overflow(s, instr);
      break;
    case InstrTask::step:
      step_optimizer(s, instr);
      break;
    case InstrTask::post_validate:
      return post_validate(s) ? Outcome::done : Outcome::started_over;
  }
  return Outcome::done;
}

void begin_first_instr(State& s) {
  s.run->start_over();
  s.numbers.clear();
  forget_async(s);
  begin_messages(s);
}

}  // namespace gsel::execute
