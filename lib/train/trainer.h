// train/trainer.h: trains a model on a communicator: compiles, verifies and initialises it, then runs its steps.
#pragma once

#include <memory>
#include <optional>

#include "base/os.h"
#include "train/compile/pass.h"
#include "train/execute/executor.h"
#include "train/joint_calls.h"
#include "train/query/inference.h"
#include "train/query/mirror.h"
#include "train/query/save_history.h"
#include "train/query/state_dict.h"
#include "train/query/user_state.h"
#include "train/query/whole_params.h"
#include "train/ranks/agree.h"
#include "train/state/budget.h"

namespace gsel {

class Trainer {
 public:
  // A collective over comm. optimizer: the embedder's, copied; nullptr for train.optimizer.
  Trainer(Communicator& comm, std::shared_ptr<Model> model, Config config, DataSource data,
          const gsel_optimizer_options* optimizer);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One step in push mode.
  void step();
  // The same in pull mode.
  gsel_work next_work();
  void complete(uint64_t ticket, gsel_status status, std::string_view message);

  // Forward and loss of one batch in push mode; without a data source the trainer's is used. Then in pull mode.
  gsel_step_report evaluate(int64_t first_sample, DataSource data);
  void begin_evaluation(int64_t first_sample);

  const Executor& executor() const { return *executor_; }
  const Program& program() const { return program_; }
  // Of the last step, or of a pulled evaluation that was not read yet. GSEL_ERR_STATE when there is none.
  const gsel_step_report& report() const;
  void report_was_read() const { pulled_evaluation_.reset(); }
  std::string step_json() const;
  gsel_comm_count counts(gsel_instr_kind kind, gsel_axis axis) const;
  gsel_memory_part memory_part(int32_t i) const;
  bool param_used(int32_t param) const;
  bool holds_params() const;

  void infer(int32_t value, int64_t n_samples, DataSource data, void* dst, size_t dst_bytes);
  void read_param(int32_t param, void* dst, size_t dst_bytes);
  void read_gradient(int32_t param, void* dst, size_t dst_bytes);
  void set_learning_rate(double rate);

  // Between steps, for checkpoints: begins the call on all ranks and makes the last step final. GSEL_ERR_UNSUPPORTED:
  // something that this trainer keeps has no form in a checkpoint.
  StateDict begin_state(JointCall call);
  // The same for parameters alone, which every trainer can give and take.
  StateDict begin_params(JointCall call);
  const Config& config() const { return config_; }
  Communicator& comm() { return comm_; }
  TrainingNumbers numbers() const;
  // Continues from a state that was written here: loaded from a checkpoint, or by the embedder.
  void go_on_from(const TrainingNumbers& numbers);
  // Continues from a state that was moved here from another trainer.
  void take_over(const TrainingNumbers& numbers);
  // Tensors are written between steps, so that copies kept before are outdated.
  void mark_written() { executor_->mark_written(); }
  std::string optimizer_name() const { return optimizer_->is_users() ? "the embedder's" : config_.train.optimizer; }
  // The same model, data and optimizer on other ranks. A collective over comm; config: nullptr for this trainer's.
  std::unique_ptr<Trainer> remade(Communicator& comm, const Config* config) const;
  // What this rank has of the state, also after a failed step: it may be a step that is whole, and kept copies. dict:
  // is filled, and must outlive the offers.
  StateOffers offers(std::optional<StateDict>& dict);
  // To be written to, by those that check what may be written.
  StateDict state_dict() {
    return {executor_->params(), *executor_->device(), *local_, program_, *optimizer_, executor_->low_rank_state()};
  }
  // Whether its communicator is broken.
  bool is_cut_off() const noexcept;
  // After an error in the middle of a load, on all ranks: the state is incomplete; training is refused until a load
  // succeeds.
  void lose_state(const std::string& reason) { executor_->lose_state(reason); }
  void refuse_lost_state() const { executor_->refuse_lost_state(); }
  // Which checkpoints this trainer has saved, and which it found to be damaged. A background save reports on its
  // thread, to the history that was current when it began.
  const std::shared_ptr<SaveHistory>& save_history() const { return save_history_; }
  // States of the embedder that checkpoints include.
  void add_state(UserState state);
  const std::vector<UserState>& user_states() const { return user_states_; }
  // Shared ones, for ranks that join; and what a rank that has joined was given, until the embedder adds them.
  std::string packed_states() const { return pack_shared(user_states_, given_states_); }
  void give_states(std::string_view packed) { given_states_ = unpack_shared(packed); }
  // Copies that ranks have kept of each other before a rebind. They go once this trainer's own are on all ranks, since
  // a rank may be lost while others still have the old trainer.
  void take_copies_of(Trainer& old);
  // Changes whenever the state may have changed.
  uint64_t version() const { return version_; }

 private:
  bool have_copies_of_now();
  void keep_copies();
  void drop_copies();
  void refuse_model(const gsel_optimizer_options* optimizer) const;
  void refuse_device() const;
  Compiled compile_own(const Config& config, const gsel_optimizer_options* options) const;
  void make_executor(Compiled own, const std::vector<Program>& programs, const gsel_optimizer_options* options);
  void log_notes(const Compiled& own, const std::vector<Program>& programs) const;
  bool keeps_copies() const { return config_.train.redundancy > 0 && comm_.world_size() > 1; }
  bool in_child() const { return os::fork_generation() != fork_generation_; }
  void check_kernels(const gsel_optimizer_options* optimizer) const;
  void log_default_decay() const;
  void refuse_in_child() const;
  void refuse_under_way(const char* what) const;
  static void refuse_sample(int64_t first_sample);
  void refuse_push(const DataSource& data) const;
  // Throw GSEL_ERR_UNSUPPORTED for state that a checkpoint cannot represent, or that other ranks cannot take over.
  void refuse_formless_state() const;
  void refuse_state_of_layout() const;
  bool is_low_rank() const;
  void begin_step();
  void end_step();
  const Param& checked_param(int32_t param) const;
  const Param& checked_read(int32_t param, const void* dst, size_t dst_bytes) const;
  Particulars particulars(const gsel_optimizer_options* optimizer, uint64_t files_key) const;
  const Program& own_of(const std::vector<Program>& programs) const;
  // Collectives.
  std::vector<Program> verified_together(const Program& own) const;
  std::vector<RankNeed> needs_of_all(const MemoryPartBytes& mine) const;
  std::vector<Suggestion> memory_advice(const Mesh& mesh) const;
  std::optional<RankNeed> need_of(const Config& config, const gsel_optimizer_options* options) const;
  void refuse_budget(const Compiled& own, const std::vector<Program>& programs,
                     const gsel_optimizer_options* options) const;

  const uint64_t fork_generation_ = os::fork_generation();
  Communicator& comm_;
  std::shared_ptr<Model> model_;
  Config config_;
  DataSource data_;
  std::optional<Optimizer> optimizer_;
  Program program_;
  std::shared_ptr<const Model> local_;  // as this rank has it; program_ refers to it
  std::unique_ptr<Executor> executor_;
  std::optional<Inference> inference_;
  std::vector<UserState> user_states_;
  std::vector<GivenState> given_states_;
  std::optional<Mirror> mirror_;    // made before the first step if train.redundancy asks for it
  std::vector<Mirror> old_copies_;  // see take_copies_of
  int ended_with_old_copies_ = 0;   // steps
  uint64_t version_;
  std::shared_ptr<SaveHistory> save_history_ = std::make_shared<SaveHistory>();
  bool pulls_evaluation_ = false;                              // under way
  mutable std::optional<gsel_step_report> pulled_evaluation_;  // ended; until read or a step begins
};

}  // namespace gsel
