// train/execute/run.h: one run through a program, and its state. Training steps, evaluations and inferences differ only
// in what this file has; they share all instructions.
#pragma once

#include <gsel/train.h>

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "program/program.h"
#include "train/compile/message_plan.h"
#include "train/execute/non_finite.h"
#include "train/memory/ledger.h"
#include "train/report/step_record.h"
#include "train/state/arena_plan.h"
#include "train/state/storage.h"

namespace gsel::execute {

struct State;

std::vector<BucketLayout> bucket_layouts(const Program& program, const ParamStorage& params);

// A gradient of a backward, whose sum of squares the device computes.
struct GradientLook {
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

  // The program, and the plan of its buffers.
  const Program& program;
  const ArenaPlan plan;
  const MessagePlan message_plan;
  const CountedMemory* memory;
  const std::vector<int32_t> microbatch_number;  // by micro-batch, see microbatch_numbers
  // Positions, or -1.
  int32_t last_backward = -1, last_loss_allreduce = -1, last_optimistic = -1;

  size_t position = 0;
  size_t phase = 0;          // of the layer at this position
  int64_t first_sample = 0;  // global id of the batch's first sample
  double loss_sum = 0, weight = 0, clip = 1;
  bool overflowed = false;
  NonFiniteOrigin origin;                     // as far as this rank knows
  std::vector<GradientLook> looks;            // in order
  std::vector<bool> empty;                    // by micro-batch: without samples on this rank
  std::vector<std::array<double, 2>> losses;  // by micro-batch: sum of losses, sum of weights
  std::vector<int64_t> fetched;               // by micro-batch: index of the first of these two in numbers, or -1
  // The first negative or non-finite loss weight: on this rank, then of all ranks once they agree. -1: none.
  int32_t odd_weight_microbatch = -1, odd_weight_rank = -1;
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
  void* left(int32_t value) const;

  uint64_t key = 0;
  std::optional<Error> failure;
};

}  // namespace gsel::execute
