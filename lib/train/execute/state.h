// train/execute/state.h: the data that a rank's instructions work on, divided by writer: constants, memory, runs,
// communication under way, training progress, and work lent to the embedder. A function takes the one struct that it
// needs, or all. The functions that change the data are in instructions.h.
#pragma once

#include <gsel/train.h>

#include <array>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/error.h"
#include "comm/communicator.h"
#include "comm/request.h"
#include "model/model.h"
#include "program/program.h"
#include "train/compile/message_plan.h"
#include "train/compile/settings.h"
#include "train/execute/call_counts.h"
#include "train/execute/device_watch.h"
#include "train/execute/messages.h"
#include "train/execute/numbers.h"
#include "train/execute/redistribute.h"
#include "train/execute/step_record.h"
#include "train/memory/ledger.h"
#include "train/memory/lender.h"
#include "train/optimize/compress.h"
#include "train/optimize/optimizer.h"
#include "train/ranks/axis_comms.h"
#include "train/state/arena_plan.h"
#include "train/state/step_copy.h"
#include "train/state/storage.h"

namespace gsel {

// The origin of the first non-finite number of a step, in the order of micro-batches, of forward and of backward, on
// any rank (non_finite.cc). Layer and value are ids of the described model. For a non-finite value: value is its id,
// layer made it (-1: an input), param is -1; values come before the gradients that follow from them. For a gradient:
// value is -1, and the backward of layer made the gradient of param, or of the layer's inputs if param is -1. Unknown:
// no rank made it, but a sum over ranks did.
struct NonFiniteOrigin {
  int32_t rank = -1, layer = -1, param = -1, microbatch = -1, value = -1;

  bool is_known() const { return rank >= 0; }
  // As a number: the minimum over ranks is the first origin; infinite if unknown.
  double order(const Model& model, int32_t n_ranks) const;
  static NonFiniteOrigin of_order(double order, const Model& model, int32_t n_ranks);
};

}  // namespace gsel

namespace gsel::execute {

struct State;

// ---- runs -----------------------------------------------------------------------------------------------------------

// One run through a program, and its state. Training steps, evaluations and inferences differ only in what their
// classes say; they share all instructions.

// A gradient of a backward, whose sum of squares the device computes.
struct PendingCheck {
  int32_t layer, param, microbatch;
  size_t squares;  // index in numbers
};

struct Run {
  // memory: holds the plan's buffers; must not move.
  Run(const Model& model, const Program& program, const ParamStorage& params, const CountedMemory& memory);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  virtual const char* name() const = 0;  // precedes the step number in messages
  virtual bool evaluates() const { return true; }
  virtual uint64_t rng_key(const State& s) const;
  // Whether one replica computes all samples.
  virtual bool is_one_replica() const { return false; }
  virtual bool collects_losses() const { return true; }
  virtual bool may_lack_samples() const { return true; }
  // Handles a failed callback. False: the failure ends the run on all ranks. True: the run goes on without callbacks.
  virtual bool keep_failure(const State&, gsel_status, std::string_view) { return false; }
  virtual bool is_without_callbacks() const { return false; }
  // Whether the losses can be divided by the sum of weights.
  bool has_weight() const { return weight > 0 && std::isfinite(weight); }
  // Resets the run to its first instruction.
  void start_over();
  // After the last instruction.
  virtual void end(State&) {}
  // After a run that ended well on every rank. A failure here does not break the trainer.
  virtual void conclude(State&) {}

  // The redistribution of the current instruction, or nullptr. Resolved once, after Redistributor::connect.
  const ResolvedRedistribution* redistribution() const {
    const int32_t i = redistribution_of.empty() ? -1 : redistribution_of[position];
    return i < 0 ? nullptr : &redistributions[static_cast<size_t>(i)];
  }
  void resolve_redistributions(const Model& model, const Redistributor& redistributor);

  // The program, and the plan of its buffers.
  const Program& program;
  const ArenaPlan plan;
  const MessagePlan message_plan;
  const CountedMemory* memory;
  const std::vector<int32_t> microbatch_number;  // by micro-batch, see microbatch_numbers
  std::vector<ResolvedRedistribution> redistributions;
  std::vector<int32_t> redistribution_of;  // by position: index in redistributions, or -1
  // Positions, or -1.
  int32_t last_backward = -1, last_loss_allreduce = -1, last_optimistic = -1;

  size_t position = 0;
  size_t phase = 0;          // of the layer at this position
  int64_t first_sample = 0;  // global id of the batch's first sample
  double loss_sum = 0, weight = 0, clip = 1;
  bool overflowed = false;
  NonFiniteOrigin origin;                     // as far as this rank knows
  std::vector<PendingCheck> pending_checks;   // in order
  std::vector<bool> empty;                    // by micro-batch: without samples on this rank
  std::vector<std::array<double, 2>> losses;  // by micro-batch: sum of losses, sum of weights
  std::vector<int64_t> fetched;               // by micro-batch: index of the first of these two in numbers, or -1
  // The first negative or non-finite loss weight: on this rank, then of all ranks once they agree. -1: none.
  int32_t bad_weight_microbatch = -1, bad_weight_rank = -1;
  std::vector<bool> weight_begun;  // by parameter: its gradient has a first contribution
  std::vector<bool> used;          // by parameter: a backward produced its gradient
  double began = 0, instr_began = 0;
  uint64_t offload_in_before = 0, offload_out_before = 0;
  StepRecord record;
};

struct TrainingStep : Run {
  using Run::Run;
  const char* name() const override { return "step"; }
  bool evaluates() const override { return false; }
  void end(State& s) override;
  void conclude(State& s) override;

 private:
  void log_progress(const State& s) const;
};

struct Evaluation : Run {
  using Run::Run;
  const char* name() const override { return "evaluation before step"; }
  void end(State& s) override;
  void conclude(State& s) override;
};

// Forward up to a value, of samples from 0 on. A callback's failure is kept and does not end the run: it goes on
// without callbacks, because other ranks wait for this one.
struct InferenceRun : Run {
  using Run::Run;
  const char* name() const override { return "inference before step"; }
  uint64_t rng_key(const State&) const override { return key; }
  bool is_one_replica() const override { return true; }
  bool collects_losses() const override { return false; }
  bool may_lack_samples() const override { return false; }
  bool keep_failure(const State& s, gsel_status status, std::string_view message) override;
  bool is_without_callbacks() const override { return failure.has_value(); }
  // The value after the last instruction; nullptr if this rank has none of it.
  void* result(int32_t value) const;

  uint64_t key = 0;
  std::optional<Error> failure;
};

// ---- state ----------------------------------------------------------------------------------------------------------

// Constants.
struct Fixed {
  Fixed(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
        const Communicator& world);

  const Layer& layer_of(const gsel_instr& instr) const { return model.layers()[instr.layer]; }
  // A negative axis has one rank.
  int32_t axis_size(gsel_axis axis) const { return axis < 0 ? 1 : mesh.size[axis]; }
  int32_t axis_coordinate(gsel_axis axis) const { return axis < 0 ? 0 : mesh.coordinate(rank, axis); }
  gsel_axis sharing_axis() const { return mesh.sharing_axis(); }

  void copy(void* dst, const void* src, uint64_t bytes, int32_t direction) const {
    device->copy(dst, src, bytes, direction);
  }
  // To the gradients, or values, at dst.
  void add(void* dst, const void* src, gsel_dtype dtype, uint64_t elems) const;
  double sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) const {
    return device->sum_squares(data, dtype, elems);
  }

  const Model& model;
  const Config config;
  const Optimizer& optimizer;
  const Mesh mesh;
  const int32_t rank;
  const NonFinite non_finite;
  const std::shared_ptr<DeviceWatch> watch;
  const std::shared_ptr<DeviceContext> device;
  MemoryPartBytes forecast;
};

// Memory of this rank. Layers, collectives and STEP write its contents. collectives.cc opens and closes windows of
// parameters and gradients; step.cc and post_validate.cc keep and restore the copy of a step.
struct HeldMemory {
  HeldMemory(const Fixed& fixed, const Program& program);

  uint64_t offload_bytes_in() const {
    return params.offload_bytes_in() + (step_copy ? step_copy->offload_bytes_in() : 0);
  }
  uint64_t offload_bytes_out() const {
    return params.offload_bytes_out() + (step_copy ? step_copy->offload_bytes_out() : 0);
  }

  Ledger ledger;
  ParamStorage params;
  CountedMemory arena;    // values, their gradients, windows, as the runs' plans say
  CountedMemory staging;  // numbers that ranks exchange
  Numbers numbers;        // of the run
  std::optional<StepCopy> step_copy;
};

// The runs. Only the executor writes here; instructions write to *run.
struct Runs {
  Runs(const Model& model, const Program& program, const HeldMemory& memory);

  const Program& program() const { return run->program; }
  // Of the current instruction.
  const ArenaOperands& operands() const { return run->plan.operands(run->position); }
  void* at(uint64_t offset) const { return offset == ArenaOperands::kNone ? nullptr : run->memory->at(offset); }
  bool is_empty(int32_t mb) const { return run->empty[mb]; }
  // Whether the current instruction is the last backward of the run.
  bool is_at_last_backward() const { return static_cast<int32_t>(run->position) == run->last_backward; }

  TrainingStep training;
  std::unique_ptr<Program> forward_program;  // made by the first evaluation
  std::unique_ptr<Evaluation> evaluation;
  Run* run = &training;  // under way, or the last one
  bool under_way = false, broken = false;
  bool broke_in_step = false;  // a training step was under way
  bool is_silent = false;      // the device has not ended what was enqueued before the failure
  bool is_mixture = false;     // the repetition of a step has ended in the middle
  std::string lost_state;      // why the state is not whole since a load; empty: it is
};

// A collective on the stream of its axis; its times are known once the run has ended.
struct AsyncCall {
  explicit AsyncCall(const std::shared_ptr<DeviceContext>& device)
      : began(device, GSEL_EVENT_TIMING), done(device, GSEL_EVENT_TIMING) {}
  Event began, done;
  gsel_instr_kind kind = 0;       // of the instruction
  size_t posted_at = 0;           // its position
  double waited_s = 0;            // of the host
  bool backward_went_on = false;  // after its WAIT
  bool ended = false;             // its WAIT has been passed; false: its times are not known yet
};

// What becomes of a bucket in the step under way: written by collectives.cc.
struct BucketState {
  gsel_instr_kind under_way = 0;  // kind of its collective under way; 0: none
  size_t call = 0;                // its index in async_calls
  gsel_axis axis = 0;             // of its collective
  float* reduced = nullptr;       // result of a reduce-scatter that is still to be added to the shard
  std::unique_ptr<Compressor> compressor;
  std::vector<uint64_t> shard_counts;  // elements by rank; empty: all equal
  bool counts = true;                  // in norms: true on one of the ranks that hold these parameters
};

// A number that pipeline ranks reduce asynchronously, while they go on with later instructions.
struct OptimisticNumber {
  bool is_open = false;
  double value = 0;                      // of this rank; then of all ranks
  std::optional<CallRequest> under_way;  // none if the pipeline has one rank
};

// Written by post_validate.cc. A failed step leaves none of its requests under way.
struct Validation {
  bool is_open = false;  // a step is not validated yet
  OptimisticNumber squares, overflow;
  double weight = 0;          // of the open step
  NonFiniteOrigin origin;     // of the open step
  gsel_comm_count counted{};  // calls made for the numbers so far
  // The last validated step; -1: none yet.
  int64_t step = -1;
  double gradient_norm = 0;
  bool overflowed = false;
};

// Sums of squares of gradients, written by step.cc and graph_numbers.cc.
struct Squares {
  std::vector<double> of_buckets;                  // sums
  std::vector<std::pair<size_t, size_t>> of_runs;  // bucket, index in numbers
};

// Communication under way and its counters: written by collectives.cc and by instructions that communicate.
struct Communication {
  Communication(const Fixed& fixed, const Program& program, Communicator& comm);

  Communicator& axis_comm(gsel_axis axis) { return comms.axis(axis); }
  // Waits until the streams of all axes are empty.
  void wait_for_streams(const DeviceContext& device) const;

  AxisComms comms;
  Redistributor redistributor;
  Event compute_done, backward_done, began_event;  // of the run: all computed so far, last backward, start
  std::unique_ptr<Messages> messages;
  Validation validation;
  Squares squares;
  std::vector<BucketState> buckets;
  std::deque<AsyncCall> async_calls;      // of the run; memory of earlier runs is used again
  size_t n_async = 0;                     // of them
  std::array<int64_t, kAxes> last_async;  // by axis: index of its last call on the axis's stream; -1: none
  CallCounts counts;
  // By axis: of its asynchronous calls; nullptr: the programs make none. Declared last: their destructors wait for work
  // that uses those above.
  std::array<std::unique_ptr<Stream>, kAxes> streams;
};

// Progress of training: written when the outcome of a step is known (end_update in non_finite.cc), after a run
// (executor.cc), and when a step is repeated (post_validate.cc).
struct Progress {
  explicit Progress(const Config& config) : seed(config.train.seed), loss_scale(config) {}

  int64_t step = 0;  // next, or under way
  int64_t seed;
  int64_t revision = 0;           // see TrainingNumbers
  uint64_t sample_of_step_0 = 0;  // first sample of step 0 if all earlier steps had as many as the next
  int64_t updates = 0;            // steps that were not skipped
  LossScale loss_scale;
  NonFiniteOrigin non_finite_origin;  // of the last step whose outcome all ranks know
  StepRecord last_step;
  bool has_step = false;
  std::optional<gsel_step_report> last_evaluation;
};

// Memory and arguments lent with the work that is handed out. layer.cc writes them; the executor reads them.
// executor.cc writes `work_began`, `handed_out` and `message` too.
struct Lent {
  explicit Lent(const Fixed& fixed) : lender(fixed.device, fixed.config.train.lending == "moved") {}

  Lender lender;
  bool handed_out = false;
  uint64_t ticket = 0;
  int32_t work_kind = 0;
  double work_began = 0;
  gsel_call call{};
  gsel_data_request request{};
  std::vector<gsel_tensor> t_params, t_inputs, t_outputs, t_d_outputs, t_d_inputs, t_d_params, t_reductions;
  std::vector<gsel_shard> param_shards, input_shards, output_shards;
  std::vector<uint8_t> produced;
  std::vector<int64_t> sample_ids;
  std::vector<uint64_t> shard_counts;
  std::vector<char> neutral;
  std::array<char, 512> message{};
};

class StepGraphs;   // graphs.h
class StepNumbers;  // step_numbers.h

// The order of bases matters: each may use those before it.
struct State : Fixed, HeldMemory, Runs, Communication, Progress {
  State(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
        Communicator& comm);
  ~State();

  std::string work_name() const;      // "layer "fc1""
  std::string where_in_step() const;  // "on rank 1, step 7"

  Lent lent;
  const std::unique_ptr<StepGraphs> graphs;
  const std::unique_ptr<StepNumbers> step_numbers;
  // That the runs use. Filled once, since what follows a failure takes no memory.
  std::vector<gsel_stream*> all_streams;
};

}  // namespace gsel::execute
