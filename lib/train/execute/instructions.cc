// train/execute/instructions.cc: runs an instruction by the work of its kind.
#include "train/execute/instructions.h"

namespace gsel::execute {

bool run_instr(State& s, const gsel_instr& instr) {
  const InstrForm& form = known_form_of(instr.kind);
  switch (form.work) {
    case InstrWork::input:
      return hand_out_input(s, instr);
    case InstrWork::forward:
    case InstrWork::backward:
      return hand_out_layer(s, instr);
    case InstrWork::message:
      form.is_send() ? send(s, instr) : receive(s, instr);
      break;
    case InstrWork::parts:
      scatter_or_gather(s, instr);
      break;
    case InstrWork::params:
      make_params_whole(s, instr);
      break;
    case InstrWork::gradients:
      reduce_gradients(s, instr);
      break;
    case InstrWork::wait:
      wait_bucket(s, instr.bucket);
      break;
    case InstrWork::release:
      release_params(s, instr);
      break;
    case InstrWork::sum_stepped:
      sum_stepped(s, instr);
      break;
    case InstrWork::loss:
      allreduce_loss(s, instr);
      break;
    case InstrWork::check:
      form.peers == InstrPeers::norm ? norm(s, instr) : find_overflow(s, instr);
      break;
    case InstrWork::step:
      step_optimizer(s, instr);
      break;
    case InstrWork::post_validate:  // done before, since it may start the step over
      break;
  }
  return false;
}

void begin_first_instr(State& s) {
  s.run->start_over();
  s.numbers.clear();
  forget_async(s);
  begin_messages(s);
}

}  // namespace gsel::execute
