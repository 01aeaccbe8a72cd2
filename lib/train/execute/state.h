// train/execute/state.h: the data that a rank's instructions work on, divided by writer: constants, memory, runs,
// communication under way, training progress, and work lent to the embedder. A function takes the one part that it
// needs, or all. The functions that change the data are in instructions.h.
#pragma once

#include <gsel/train.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "comm/communicator.h"
#include "comm/request.h"
#include "train/compile/settings.h"
#include "train/execute/call_counts.h"
#include "train/execute/messages.h"
#include "train/execute/non_finite.h"
#include "train/execute/numbers.h"
#include "train/execute/redistribute.h"
#include "train/execute/run.h"
#include "train/memory/lender.h"
#include "train/optimize/compress.h"
#include "train/optimize/loss_scale.h"
#include "train/optimize/optimizer.h"
#include "train/ranks/axis_comms.h"
#include "train/state/step_copy.h"

namespace gsel::execute {

// Constants.
struct Fixed {
  Fixed(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
        std::shared_ptr<DeviceContext> device);

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
  const MemoryPartBytes forecast;
  const std::shared_ptr<DeviceContext> device;
};

// Memory of this rank. Layers, collectives and STEP write its contents. buckets.cc opens and closes windows of
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
};

// A collective on the communication stream; its times are known once the run has ended.
struct AsyncCall {
  explicit AsyncCall(const std::shared_ptr<DeviceContext>& device) : began(device), done(device) {}
  Event began, done;
  gsel_instr_kind kind = 0;       // of the instruction
  size_t posted_at = 0;           // its position
  double waited_s = 0;            // of the host
  bool backward_went_on = false;  // behind its WAIT
  bool ended = false;             // its WAIT has been passed; false: its times are not known yet
};

// What becomes of a bucket in the step under way: written by calls.cc and buckets.cc.
struct BucketState {
  gsel_instr_kind under_way = 0;  // kind of its collective under way; 0: none
  size_t call = 0;                // its index in async_calls
  gsel_axis axis = 0;             // it is over
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

// Sums of squares of gradients, written by step.cc.
struct Squares {
  std::vector<double> of_bucket;
  std::vector<std::pair<size_t, size_t>> of_runs;  // bucket, index in numbers
};

// Communication under way and its counters: written by calls.cc and by instructions that communicate.
struct Communication {
  Communication(const Fixed& fixed, const Program& program, Communicator& comm);

  Communicator& axis_comm(gsel_axis axis) { return comms.axis(axis); }

  AxisComms comms;
  Redistributor redistributor;
  Event compute_done, backward_done, began_event;  // of the run: all computed so far, last backward, start
  std::unique_ptr<Messages> messages;
  Validation validation;
  Squares squares;
  std::vector<BucketState> buckets;
  std::deque<AsyncCall> async_calls;      // of the run; memory of earlier runs is used again
  size_t n_async = 0;                     // of them
  std::array<int64_t, kAxes> last_async;  // by axis: index of its last call on comm_stream; -1: none
  CallCounts counts;
  std::unique_ptr<Stream> comm_stream;  // declared last: its destructor waits for work that uses those above
};

// Progress of training: written when the outcome of a step is known (end_update in non_finite.cc), after a run
// (run.cc), and when a step is repeated (post_validate.cc).
struct Progress {
  explicit Progress(const Config& config) : loss_scale(config) {}

  int64_t step = 0;     // next, or under way
  int64_t updates = 0;  // steps that were not skipped
  LossScale loss_scale;
  NonFiniteOrigin non_finite_origin;  // of the last step whose outcome all ranks know
  StepRecord last_step;
  bool has_step = false;
  std::optional<gsel_step_report> last_evaluation;
};

// Memory and arguments lent with the work that is handed out. layer.cc and layer_collectives.cc write them; the
// executor reads them. executor.cc writes `work_began`, `handed_out` and `message` too.
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
  std::vector<uint64_t> part_counts;
  std::vector<char> neutral;
  std::array<char, 512> message{};
};

// The order of bases matters: each may use those before it.
struct State : Fixed, HeldMemory, Runs, Communication, Progress {
  State(const Model& model, const Program& program, const Config& config, const Optimizer& optimizer,
        Communicator& comm);

  std::string piece_at_work() const;  // "layer "fc1""
  std::string where_in_step() const;  // "on rank 1, step 7"

  Lent lent;
};

}  // namespace gsel::execute
