// train/execute/executor.h: runs a rank's program. It stops at each instruction that needs the embedder (an input, a
// callback), hands it out as work, and goes on when told that the work is complete; everything else it does itself,
// through the backend. Pull is this; push is a loop over it. Does not know strategies.
//   executor_make.cc         what it takes before the first step
//   executor.cc              the step, from instruction to instruction
//   executor_work.cc         what is handed out and taken back: inputs, callbacks
//   executor_phases.cc       collectives in the middle of callbacks
//   executor_convert.cc      layers of the library's own, between placements on the tensor axis
//   executor_gradients.cc    where a backward writes
//   executor_collectives.cc  calls of the communicator, and what they are counted under
//   executor_buckets.cc      windows of buckets, and the collectives that fill and empty them
//   executor_values.cc       SCATTER and COLLECT
//   executor_messages.cc     SEND and RECV
//   executor_inference.cc    forward alone up to a value, which a failing callback does not end
//   executor_optimizer.cc    loss, overflow, norm, optimizer
//   executor_non_finite.cc   gradients that are not finite, and where they came from
//   executor_post_validation.cc   steps that are made before it is known whether they may be
#pragma once

#include <gsel/train.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/config.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "program/program.h"
#include "train/axis_comms.h"
#include "train/execute/messages.h"
#include "train/execute/non_finite.h"
#include "train/execute/post_validation.h"
#include "train/execute/redistribute.h"
#include "train/memory/arena_plan.h"
#include "train/memory/lender.h"
#include "train/memory/step_copy.h"
#include "train/memory/storage.h"
#include "train/optimize/compress.h"
#include "train/optimize/loss_scale.h"
#include "train/optimize/optimizer.h"
#include "train/report/step_record.h"

namespace gsel {

class Executor {
 public:
  Executor(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
           Communicator& comm);
  ~Executor();

  // Joins the groups of the mesh and runs the setup program: parameters become rank 0's. A collective.
  void run_setup();

  // Next work of what is under way; of a new step when nothing is. Kind GSEL_WORK_DONE ends it.
  gsel_work next();
  // The work handed out is done, or failed with a reason. Throws GSEL_ERR_CALLBACK for a failure, after ending the
  // step on every rank.
  void complete(uint64_t ticket, gsel_status status, std::string_view message);
  // An evaluation is under way from here on, of samples from first_sample on.
  void begin_evaluation(int64_t first_sample);
  // For ever: nothing can follow what is under way, so it ends on all ranks, and nothing of this rank's is left beside
  // the caller.
  void end_all(std::string_view reason) noexcept;
  // Between steps: the last one is as it stays. A collective of the pipeline where its norm or overflow was optimistic.
  void settle_last_step();

  // The text a failing callback wrote.
  std::string_view callback_message() const { return message_.data(); }
  void write_message(std::string_view text);

  bool under_way() const { return under_way_; }
  int64_t next_step() const { return step_; }
  bool broken() const { return broken_; }
  const StepRecord* last_step() const { return has_step_ ? &last_step_ : nullptr; }
  const std::optional<gsel_step_report>& last_evaluation() const { return last_evaluation_; }
  // What ended last, a step or an evaluation, and the program it went through.
  const StepRecord& last_run() const { return evaluating_ ? now_ : last_step_; }
  const Program& last_program() const { return program(); }
  gsel_comm_count counts(gsel_instr_kind kind, gsel_axis axis) const;
  bool param_used(int32_t p) const { return used_[p]; }
  const PartBytes& forecast() const { return forecast_; }

  ParamStorage& params() { return params_; }
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  // Memory that is free between steps.
  CountedMemory& arena() { return arena_; }
  const std::shared_ptr<Backend>& backend() const { return backend_; }
  // The ranks that differ in their place on one axis alone, how many they are, and which of them this rank is.
  Communicator& axis_comm(gsel_axis axis) { return comms_.axis(axis); }
  int32_t axis_size(gsel_axis axis) const;
  gsel_axis sharing_axis() const;
  int32_t axis_place(gsel_axis axis) const;

  // A program to go through, and where its buffers are. Training has one, evaluation another, each inference its own.
  struct RunPlan {
    RunPlan(const Model& model, const Program& program, const ParamStorage& params);
    const Program& program;
    ArenaPlan plan;
    MessagePlan messages;
    int32_t last_backward = -1;
    int32_t last_loss_reduce = -1;
    int32_t last_optimistic = -1;
  };
  std::unique_ptr<RunPlan> make_run_plan(const Program& program) const;

  // An inference is under way from here on, through a plan of forwards, of samples from 0 on. memory: for what the
  // plan needs. A callback that fails does not break it off, since other ranks wait for what this one has to give:
  // the rest is done without callbacks, and the failure is kept.
  void begin_inference(const RunPlan& run_plan, const CountedMemory& memory, uint64_t rng_key);
  // Once it has ended: what failed on this rank.
  std::optional<Error> end_inference();
  // Where a plan has a value behind its last instruction; nullptr where it has none.
  void* left_by(const RunPlan& run_plan, const CountedMemory& memory, int32_t value) const;
  // The largest of what the ranks of this replica say: those that differ in their places on the tensor and the pipeline
  // axis. A collective of them, between steps.
  double largest_of_replica(double mine);

 private:
  static constexpr size_t kInstrKinds = GSEL_INSTR_POST_VALIDATE + 1;
  using Counts = std::array<std::array<gsel_comm_count, kInstrKinds>, kAxes>;

  // What becomes of a bucket in the step under way.
  struct BucketState {
    explicit BucketState(const std::shared_ptr<Backend>& backend) : begun(backend), done(backend) {}
    Event begun, done;              // of the collective under way
    gsel_instr_kind under_way = 0;  // its kind; 0: none
    size_t posted_at = 0;           // its position
    gsel_axis axis = 0;             // it is over
    float* reduced = nullptr;       // result of a reduce-scatter that is still to be added to the shard
    std::unique_ptr<Compressor> compressor;
    std::vector<uint64_t> shard_counts;  // elements of each rank's shard; empty where all are alike
    bool counts = true;                  // in norms: of places that hold the same parameters one does
  };

  // executor_make.cc
  void refuse_precision() const;
  void add_bucket(int32_t bucket);
  void meet_tensor_axis();
  void follow_first_place();
  void follow_first_holders();

  // executor.cc
  void begin(const RunPlan& run_plan, int64_t first_sample);
  void begin_first_instr();
  void finish();
  void conclude();
  void end_update(bool overflowed, int64_t step, const NonFiniteOrigin& origin);
  uint64_t offload_bytes_in() const;
  uint64_t offload_bytes_out() const;
  [[noreturn]] void break_off(const Error& error);
  bool run_instr(const gsel_instr& instr);  // true: work was handed out
  void end_instr();
  std::string where_in_step() const;
  [[noreturn]] void fail_callback(gsel_status status, std::string_view message);

  // executor_work.cc
  void hand_out(int32_t work_kind);
  bool hand_out_input(const gsel_instr& instr);
  void take_back_input(const gsel_instr& instr, bool no_samples);
  bool hand_out_layer(const gsel_instr& instr);
  void take_back_layer(const gsel_instr& instr);
  void lend_call(const gsel_instr& instr, const Layer& layer);
  void lend_values(const gsel_instr& instr, const Layer& layer);
  void lend_parts(const Layer& layer);
  gsel_tensor lend_param(int32_t p, bool reads);
  void list_samples(const Microbatch& mb);
  void collect_loss(const gsel_instr& instr);

  // executor_phases.cc
  const std::vector<gsel_phase>& phases_of(const gsel_instr& instr) const;
  const std::vector<gsel_phase>& buffers_of(const gsel_instr& instr) const;
  void* buffer_place(const gsel_instr& instr, int32_t i, size_t done) const;
  int32_t buffer_of(const gsel_instr& instr, size_t k) const;
  void pass_on(const gsel_instr& instr, size_t k);
  void reduce_phase(const gsel_instr& instr, size_t k);
  void join_phases(const gsel_instr& instr);
  int32_t ranks_of(const gsel_phase& phase) const;

  // executor_convert.cc
  void convert(const gsel_instr& instr);
  void convert_value(const gsel_instr& instr, const Layer& layer);
  void redistribute_gradient(const gsel_instr& instr, const Layer& layer);
  void run_conversion(gsel_instr_kind poster, const RedistributionJob& job);

  // executor_gradients.cc
  void begin_backward(const gsel_instr& instr, const Layer& layer);
  void begin_weight_gradients(const Layer& layer);
  void lend_gradients(const gsel_instr& instr, const Layer& layer);
  void finish_backward(const gsel_instr& instr, const Layer& layer);
  void finish_weight_gradients(const Layer& layer);
  void* contribution_place(int32_t v, int32_t mb) const;
  void scale_contribution(int32_t v, int32_t mb);
  void finish_contribution(int32_t v, int32_t mb);
  void open_gradient_window(int32_t bucket);
  void zero_gradient(int32_t p);
  void zero_missing_gradients(int32_t bucket);
  void forget_contributions(int32_t bucket);

  // executor_collectives.cc
  void call_now(gsel_instr_kind poster, gsel_axis axis, gsel_collective call);
  void call_in(Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call);
  void combine_now(gsel_instr_kind poster, gsel_axis axis, std::span<double> numbers, gsel_op op);
  void begin_beside(const gsel_instr& instr, gsel_collective_kind kind);
  void end_beside(const gsel_instr& instr);
  void post(const gsel_instr& instr, gsel_collective call);
  void drain(gsel_axis axis);
  void note_exposed(gsel_axis axis, double seconds);
  void wait_bucket(int32_t bucket);
  void note_beside(const BucketState& bucket, gsel_instr_kind kind, double waited);
  void count_under(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster);
  void settle(gsel_axis axis, gsel_collective_kind kind);
  void forget_counts();
  void keep_counts();
  gsel_comm_count counted(gsel_axis axis, gsel_collective_kind kind);

  // executor_buckets.cc
  void open_param_window(int32_t bucket);
  void release_params(int32_t bucket);
  void broadcast_params(const gsel_instr& instr);
  void follow_params(int32_t bucket);
  double own_params_differ(const Stretch& own, uint64_t elems) const;
  void gather_params(const gsel_instr& instr);
  void reduce_gradients(const gsel_instr& instr);
  void reduce_to_root(const gsel_instr& instr);
  void scatter_gradients(const gsel_instr& instr);
  void finish_collective(int32_t bucket, gsel_instr_kind kind);
  void add_reduced(int32_t bucket);
  void close_gradient_window(int32_t bucket);

  // executor_values.cc
  void list_parts(const gsel_instr& instr);
  void exchange_parts(const gsel_instr& instr);

  // executor_messages.cc
  gsel_collective call_of_message(size_t position) const;
  void begin_messages();
  void send(const gsel_instr& instr);
  void receive(const gsel_instr& instr);
  void settle_messages();
  template <class Wait>
  void waiting_for_messages(Wait&& wait);

  // executor_inference.cc
  bool goes_on_without_callbacks() const { return inference_ && inference_->failure; }
  void keep_failure(gsel_status status, std::string_view message);
  void go_through_phases(const gsel_instr& instr);

  // executor_optimizer.cc
  void loss_allreduce(const gsel_instr& instr);
  [[noreturn]] void refuse_weight() const;
  void tell_losses(std::span<double, 2> parts);
  void find_overflow(const gsel_instr& instr);
  void norm(const gsel_instr& instr);
  void allreduce_partial(const gsel_instr& instr);
  void allreduce_tied(const gsel_instr& instr);
  void step_bucket(const gsel_instr& instr);
  double clip_of(double gradient_norm) const;
  bool tells_overflow(double squares) const;
  bool is_divided(int32_t bucket) const;
  double own_squares(int32_t bucket, const std::function<bool(const Param&)>& counts);
  void sum_over_parts(const ProgramBucket& bucket, std::span<double> numbers);

  // executor_non_finite.cc
  void look_for_non_finite(const gsel_instr& instr, const Layer& layer);
  void tell_non_finite(NonFiniteOrigin origin);
  void judge_non_finite(int64_t step) const;
  void report_non_finite(gsel_step_report& report) const;

  // executor_post_validation.cc
  void go_on_without(const gsel_instr& instr, double number);
  void keep_until_validated(int32_t bucket, const Stretch& stretch);
  void report_validated(gsel_step_report& report) const;
  bool post_validate();
  bool settle_validation();
  void* memory_of_optimistic(bool is_norm) const;
  void take_optimistic(OptimisticNumber& number);
  void count_optimistic(int32_t n);
  void close_forward();
  void step_again(double clip, bool overflowed);

  const Program& program() const { return run_plan_->program; }
  const ArenaPlan& plan() const { return run_plan_->plan; }
  bool is_empty(int32_t mb) const { return empty_[mb]; }
  const Layer& layer_of(const gsel_instr& instr) const { return model_.layers()[instr.layer]; }
  void* at(uint64_t offset) const {
    return offset == ArenaPlan::kNone ? nullptr : (inference_ ? *inference_->memory : arena_).at(offset);
  }
  gsel_tensor value_view(int32_t v, int32_t mb, void* data) const;
  void zero(void* memory, uint64_t bytes) const;

  const Model& model_;
  const Config config_;
  const Optimizer& optimizer_;
  AxisComms comms_;
  std::shared_ptr<Backend> backend_;
  Ledger ledger_;
  ParamStorage params_;
  RunPlan training_;
  std::unique_ptr<Program> forward_program_;  // made by the first evaluation
  std::unique_ptr<RunPlan> evaluation_;
  CountedMemory arena_;
  CountedMemory staging_;  // numbers that ranks tell each other
  Event compute_done_, backward_done_, began_event_;
  std::optional<StepCopy> step_copy_;
  // After the memory they are in.
  Messages messages_;
  Validation validation_;
  std::vector<BucketState> buckets_;
  // After all that its work uses: its end waits for that work.
  std::unique_ptr<Stream> comm_stream_;
  std::array<int32_t, kAxes> last_beside_;  // by axis: bucket of its last call there; -1: none yet
  Lender lender_;
  Redistributor redistributor_;
  LossScale loss_scale_;
  const NonFinite non_finite_;
  PartBytes forecast_{};

  // What is under way.
  const RunPlan* run_plan_;
  bool under_way_ = false, evaluating_ = false, broken_ = false;
  size_t position_ = 0;
  size_t phase_ = 0;          // of the layer at position_
  int64_t step_ = 0;          // the next one, or the one under way
  int64_t updates_ = 0;       // steps that were not skipped
  int64_t first_sample_ = 0;  // global id of the batch's first sample
  double loss_sum_ = 0, weight_ = 0, clip_ = 1;
  bool overflowed_ = false;
  NonFiniteOrigin origin_;                     // of the step under way, as far as this rank knows
  NonFiniteOrigin non_finite_origin_;          // of the last step that all ranks know the outcome of
  std::vector<bool> empty_;                    // by micro-batch: without samples on this rank
  std::vector<std::array<double, 2>> losses_;  // by micro-batch: sum of losses, sum of weights
  std::vector<bool> weight_begun_;             // by parameter: its gradient has a first contribution
  std::vector<bool> used_;                     // by parameter: a backward of the last step produced its gradient
  double began_ = 0, instr_began_ = 0, work_began_ = 0;
  uint64_t offload_in_before_ = 0, offload_out_before_ = 0;
  StepRecord now_, last_step_;
  bool has_step_ = false;
  std::optional<gsel_step_report> last_evaluation_;
  struct Inference {
    const CountedMemory* memory;
    uint64_t rng_key;
    std::optional<Error> failure;
  };
  std::optional<Inference> inference_;  // under way

  // Calls are counted under the kind of instruction that posted them last; by axis and kind of call.
  struct Meter {
    gsel_comm_count seen{};
    gsel_instr_kind poster = 0;
  };
  std::array<std::array<Meter, GSEL_COLLECTIVE_KINDS>, kAxes> meters_{};
  Counts counts_{}, counts_now_{};

  // What is lent with the work handed out.
  bool handed_out_ = false;
  uint64_t ticket_ = 0;
  int32_t work_kind_ = 0;
  gsel_call call_{};
  gsel_data_request request_{};
  std::vector<gsel_tensor> t_params_, t_inputs_, t_outputs_, t_d_outputs_, t_d_inputs_, t_d_params_, t_reductions_;
  std::vector<gsel_part> param_parts_, input_parts_, output_parts_;
  std::vector<uint8_t> produced_;
  std::vector<int64_t> sample_ids_;
  std::vector<uint64_t> part_counts_;
  std::vector<char> neutral_;
  std::array<char, 512> message_{};
};

}  // namespace gsel
