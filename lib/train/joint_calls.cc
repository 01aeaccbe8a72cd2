// train/joint_calls.cc: see joint_calls.h. The communicator compares the calls (comm/shm/announcements.cc, and
// comm/hosts over several hosts).
#include "train/joint_calls.h"

#include <bit>
#include <optional>

namespace gsel {
namespace {

std::string text_of(JointCall call, int64_t argument) {
  switch (call) {
    case JointCall::step:
      return "gsel_trainer_step";
    case JointCall::evaluate:
      return fmt::format("gsel_trainer_evaluate(first_sample {})", argument);
    case JointCall::infer:
      return fmt::format("gsel_trainer_infer(value {})", argument);
    case JointCall::read_param:
      return fmt::format("gsel_trainer_read_param(param {})", argument);
    case JointCall::read_gradient:
      return fmt::format("gsel_trainer_read_gradient(param {})", argument);
    case JointCall::set_learning_rate:
      return fmt::format("gsel_trainer_set_learning_rate({})", std::bit_cast<double>(argument));
    case JointCall::read_state:
      return "gsel_state_open";
    case JointCall::save:
      return "gsel_trainer_save";
    case JointCall::load:
      return "gsel_trainer_load";
    case JointCall::load_weights:
      return "gsel_trainer_load_weights";
    case JointCall::export_weights:
      return "gsel_trainer_export_weights";
    case JointCall::run_pipeline:
      return fmt::format("gsel_pipeline_run({})", argument == GSEL_FORWARD ? "GSEL_FORWARD" : "GSEL_FORWARD_BACKWARD");
  }
  return "another call";
}

}  // namespace

void begin_joint_call(Communicator& comm, Executor& executor, JointCall call, int64_t argument) {
  if (executor.broken()) return;  // the call itself reports it
  std::optional<OtherJointCall> other;
  try {
    other = comm.begin_joint_call(static_cast<int32_t>(call), static_cast<uint64_t>(argument));
  } catch (const Error& error) {
    executor.end_all(error.message());
    throw;
  }
  if (!other) return;
  const std::string mine = text_of(call, argument),
                    its = text_of(static_cast<JointCall>(other->kind), static_cast<int64_t>(other->argument));
  const bool first = comm.rank() < other->rank;
  const Error error(GSEL_ERR_MISMATCH,
                    fmt::format("rank {} called {}, rank {} called {}; make the trainer's calls alike on every rank",
                                first ? comm.rank() : other->rank, first ? mine : its,
                                first ? other->rank : comm.rank(), first ? its : mine));
  comm.break_with(error);
  executor.end_all(error.message());
  throw Error(error).about_rank(other->rank);
}

}  // namespace gsel
