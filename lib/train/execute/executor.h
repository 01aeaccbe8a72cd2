// train/execute/executor.h: runs a rank's program in pull mode. It stops at each instruction that needs the embedder
// (an input, a callback), hands it out as work, and goes on when the caller completes the work. It runs all other
// instructions itself, through the device. Does not know strategies, nor what an instruction does:
//   state.h          what instructions work on, and the kinds of runs: a training step, an evaluation, an inference
//   instructions.h   what each of them does
#pragma once

#include "train/execute/state.h"

namespace gsel {

class Executor {
 public:
  Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
           Communicator& comm);

  // Creates the communicators of the mesh and runs the setup program: all ranks get rank 0's parameters. A collective.
  void run_setup();

  // The next work of the run under way, or of a new step. GSEL_WORK_DONE: the run has ended.
  gsel_work next();
  // The work handed out is done, or failed with a reason. A failure ends the step on every rank and throws
  // GSEL_ERR_CALLBACK.
  void complete(uint64_t ticket, gsel_status status, std::string_view message);
  // Begins an evaluation of the samples from first_sample on.
  void begin_evaluation(int64_t first_sample);
  // Begins an inference made by make_inference. memory: holds the buffers of its plan.
  void begin_inference(execute::InferenceRun& run, const CountedMemory& memory, uint64_t rng_key);
  // After the inference: the failure on this rank, if any.
  std::optional<Error> end_inference(execute::InferenceRun& run);
  // program: forwards only; must outlive the run.
  std::unique_ptr<execute::InferenceRun> make_inference(const Program& program) const;
  // Aborts the communicators of all axes: all calls fail on every rank, and no step can follow. about: the rank that
  // failed, -1 for this one.
  void end_all(std::string_view reason, int32_t about = -1) noexcept;
  // Marks the state as lost: all but a load is refused until go_on_from, which declares that another state has been
  // loaded.
  void lose_state(const std::string& reason) { s_.lost_state = reason; }
  // Between steps: makes the last step final. A collective of the pipeline if the step was optimistic.
  void settle_last_step();

  // Between steps, for checkpoints: the step that comes next, the loss scale.
  TrainingNumbers numbers() const;
  void go_on_from(const TrainingNumbers& numbers);
  void mark_written() { ++s_.revision; }
  void set_revision(int64_t revision) { s_.revision = revision; }

  // The text that a failing callback wrote.
  std::string_view callback_message() const { return s_.lent.message.data(); }
  void write_message(std::string_view text);

  bool under_way() const { return s_.under_way; }
  bool broken() const { return s_.broken; }
  // GSEL_ERR_STATE: the state is lost.
  void refuse_lost_state() const;
  // Whether parameters and optimizer state are those at the start of step numbers().step. False inside a step that has
  // stepped a bucket, also if it failed there, while an optimistic step is not validated, and when the state is lost.
  bool has_whole_state() const;
  const StepRecord* last_step() const { return s_.has_step ? &s_.last_step : nullptr; }
  const std::optional<gsel_step_report>& last_evaluation() const { return s_.last_evaluation; }
  const Program& training_program() const { return s_.training.program; }
  // The last step or evaluation that ended, and its program.
  const StepRecord& last_run() const { return s_.run->evaluates() ? s_.run->record : s_.last_step; }
  const Program& last_program() const { return s_.run->program; }
  gsel_comm_count counts(gsel_instr_kind kind, gsel_axis axis) const { return s_.counts.of(kind, axis); }
  bool param_used(int32_t p) const { return s_.training.used[p]; }
  const MemoryPartBytes& forecast() const { return s_.forecast; }
  // Adds memory that others will take from the ledger to the forecast.
  void foresee(MemoryPart part, uint64_t bytes) { s_.forecast[static_cast<size_t>(part)] += bytes; }

  ParamStorage& params() { return s_.params; }
  // Of all buckets, between steps.
  std::vector<LowRankState> low_rank_state() const;
  Ledger& ledger() { return s_.ledger; }
  const Ledger& ledger() const { return s_.ledger; }
  // Free between steps.
  CountedMemory& arena() { return s_.arena; }
  const std::shared_ptr<DeviceContext>& device() const { return s_.device; }
  // The ranks that differ only in their coordinate on this axis; their number; this rank's coordinate.
  Communicator& axis_comm(gsel_axis axis) { return s_.axis_comm(axis); }
  int32_t axis_size(gsel_axis axis) const { return s_.axis_size(axis); }
  gsel_axis sharing_axis() const { return s_.sharing_axis(); }
  int32_t axis_coordinate(gsel_axis axis) const { return s_.axis_coordinate(axis); }
  // The maximum over this replica's ranks, which differ only on the sharing and the pipeline axis. A collective of the
  // replica, between steps.
  double largest_of_replica(double mine);
  // Between steps: until a device has done all that it was given. over_ranks: calls of communicators are part of it.
  // Throws if one is broken, since these may have left anything.
  void wait_for_device(bool over_ranks);

 private:
  void begin(execute::Run& run, int64_t first_sample);
  void begin_together(execute::Run& run, int64_t first_sample);
  void make_evaluation_together();
  void make_evaluation();
  void enlarge_arena(uint64_t bytes);
  int64_t first_sample() const;  // of the next step, or of the one under way
  void run_to_work();
  void end_instr();
  void end();
  void refuse_broken() const;
  void refuse_other_work(uint64_t ticket) const;
  Error callback_error(gsel_status status, std::string_view message) const;
  // Breaks the step off and throws. If a graph was being recorded, discards the recording instead, and the step
  // continues without it.
  void handle(const Error& error);
  [[noreturn]] void break_off(const Error& error);
  [[noreturn]] void throw_with_silence(const Error& error) const;

  execute::State s_;
  bool evaluation_fits_ = false;  // on all ranks
};

// ---- push mode: a loop over pull mode -------------------------------------------------------------------------------

// The function that fills inputs.
struct DataSource {
  gsel_data_fn fill = nullptr;
  void* user_data = nullptr;
};

// Calls the model's callbacks on the calling thread until the run under way, or a new step, has ended. Throws what the
// executor does.
void push(Executor& executor, const Model& model, const DataSource& data);

// The first layer without callbacks, or nullptr.
const Layer* find_pull_only(const Model& model);

}  // namespace gsel
