// train/execute/executor.h: runs a rank's program. It stops at each instruction that needs the embedder (an input, a
// callback), hands it out as work, and goes on when the caller says that the work is complete. It runs all other
// instructions itself, through the device. This is pull mode. Does not know strategies,
// nor what an instruction does:
//   run.h            the kinds of runs through a program: a training step, an evaluation, an inference
//   state.h          what instructions work on
//   instructions.h   what each of them does
//   setup.cc         what runs before the first step
#pragma once

#include "train/execute/state.h"

namespace gsel {

// GSEL_ERR_UNSUPPORTED: messages between the ranks of a pipeline travel in memory of the host.
void refuse_pipeline_on_device(const Communicator& comm, int32_t pipeline_ranks);

class Executor {
 public:
  Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
           Communicator& comm);

  // Joins the groups of the mesh and runs the setup program: parameters become rank 0's. A collective.
  void run_setup();

  // Next work of what is under way; of a new step when nothing is. Kind GSEL_WORK_DONE ends it.
  gsel_work next();
  // The work handed out is done, or failed with a reason. Throws GSEL_ERR_CALLBACK for a failure, after ending the
  // step on every rank.
  void complete(uint64_t ticket, gsel_status status, std::string_view message);
  // An evaluation is under way from here on, of samples from first_sample on.
  void begin_evaluation(int64_t first_sample);
  // An inference is under way from here on, made by make_inference; memory: for what its plan needs.
  void begin_inference(execute::InferenceRun& run, const CountedMemory& memory, uint64_t rng_key);
  // Once it has ended: what failed on this rank.
  std::optional<Error> end_inference(execute::InferenceRun& run);
  // program: of forwards; it stays as long as the run does.
  std::unique_ptr<execute::InferenceRun> make_inference(const Program& program) const;
  // Aborts the communicators of all axes: every rank leaves its calls with an error, and no step can follow.
  // about: the rank that the failure is about; -1: this one.
  void end_all(std::string_view reason, int32_t about = -1) noexcept;
  // Between steps: the last one is as it stays. A collective of the pipeline where its norm or overflow was optimistic.
  void settle_last_step();

  // The text a failing callback wrote.
  std::string_view callback_message() const { return s_.lent.message.data(); }
  void write_message(std::string_view text);

  bool under_way() const { return s_.under_way; }
  int64_t next_step() const { return s_.step; }
  bool broken() const { return s_.broken; }
  const StepRecord* last_step() const { return s_.has_step ? &s_.last_step : nullptr; }
  const std::optional<gsel_step_report>& last_evaluation() const { return s_.last_evaluation; }
  // What ended last, a step or an evaluation, and the program it went through.
  const StepRecord& last_run() const { return s_.run->evaluates() ? s_.run->record : s_.last_step; }
  const Program& last_program() const { return s_.run->program; }
  gsel_comm_count counts(gsel_instr_kind kind, gsel_axis axis) const { return s_.counts.of(kind, axis); }
  bool param_used(int32_t p) const { return s_.training.used[p]; }
  const MemoryPartBytes& forecast() const { return s_.forecast; }

  ParamStorage& params() { return s_.params; }
  Ledger& ledger() { return s_.ledger; }
  const Ledger& ledger() const { return s_.ledger; }
  // Memory that is free between steps.
  CountedMemory& arena() { return s_.arena; }
  const std::shared_ptr<DeviceContext>& device() const { return s_.device; }
  // The ranks that differ in their coordinate on one axis alone, how many they are, and which of them this rank is.
  Communicator& axis_comm(gsel_axis axis) { return s_.axis_comm(axis); }
  int32_t axis_size(gsel_axis axis) const { return s_.axis_size(axis); }
  gsel_axis sharing_axis() const { return s_.sharing_axis(); }
  int32_t axis_coordinate(gsel_axis axis) const { return s_.axis_coordinate(axis); }
  // The largest of what the ranks of this replica say: those that differ in their coordinates on the sharing and the
  // pipeline axis. A collective of them, between steps.
  double largest_of_replica(double mine);

 private:
  void begin(execute::Run& run, int64_t first_sample);
  void end_instr();
  void end();
  void refuse_broken() const;
  void refuse_other_work(uint64_t ticket) const;
  [[noreturn]] void fail_callback(gsel_status status, std::string_view message);
  [[noreturn]] void break_off(const Error& error);

  execute::State s_;
};

// ---- push mode: a loop over pull mode -------------------------------------------------------------------------------

// Who fills inputs.
struct DataSource {
  gsel_data_fn fill = nullptr;
  void* user_data = nullptr;
};

// Calls the model's callbacks on the calling thread until what is under way in the executor, or a new step, has ended.
// Throws what the executor does.
void push(Executor& executor, const Model& model, const DataSource& data);

// The first layer without callbacks, or nullptr.
const Layer* find_pull_only(const Model& model);

}  // namespace gsel
