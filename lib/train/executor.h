// train/executor.h: runs a rank's program. It stops at each instruction that needs the embedder (an input, a callback),
// hands it out as work, and goes on when told that the work is complete; everything else it does itself, through the
// backend. Pull is this; push is a loop over it. Refuses to know strategies.
#pragma once

#include <gsel/train.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "base/config.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "program/program.h"
#include "train/storage.h"

namespace gsel {

class Executor {
 public:
  Executor(const Model& model, const Program& program, const Config& config, Communicator& comm);
  ~Executor();

  // Runs the setup program: parameters become rank 0's.
  void run_setup();

  // Next work of the step, beginning one when none is under way; kind GSEL_WORK_DONE ends it.
  gsel_work next();
  // The work handed out is done, or failed with a reason. Throws GSEL_ERR_CALLBACK for a failure, after ending the
  // step on every rank.
  void complete(uint64_t ticket, gsel_status status, std::string_view message);
  // The text a failing callback wrote.
  std::string_view callback_message() const { return message_.data(); }
  void write_message(std::string_view text);

  bool in_step() const { return in_step_; }
  const std::optional<gsel_step_report>& report() const { return report_; }
  gsel_comm_count counts(gsel_instr_kind kind, gsel_axis axis) const;
  ParamStorage& params() { return params_; }

 private:
  struct Reduction {
    Event begun, done;
    bool waiting = false;
    bool used = false;
  };

  void begin_step();
  void finish_step();
  void break_off(std::string_view reason);
  bool run_instr(const gsel_instr& instr);  // true: work was handed out
  void hand_out_input(const gsel_instr& instr);
  void hand_out_layer(const gsel_instr& instr);
  void prepare_gradients(const gsel_instr& instr, const Layer& layer);
  void prepare_weight_gradients(const Layer& layer);
  void finish_layer(const gsel_instr& instr);
  void collect_loss(const gsel_instr& instr);
  void zero_missing_gradients(int32_t bucket);
  void begin_collective(const gsel_instr& instr);
  void wait_bucket(int32_t bucket);
  void loss_reduce(const gsel_instr& instr);
  void norm();
  void step_bucket(int32_t bucket);
  [[noreturn]] void fail_callback(gsel_status status, std::string_view message);
  void* value_at(uint64_t offset) const { return offset == ValuePlan::kNone ? nullptr : values_.at(offset); }
  gsel_tensor value_view(int32_t v, int32_t mb, uint64_t offset) const;
  const Layer& layer_of(const gsel_instr& instr) const { return model_.layers()[instr.layer]; }

  const Model& model_;
  const Program& program_;
  const Config config_;
  Communicator& comm_;
  std::shared_ptr<Backend> backend_;
  ParamStorage params_;
  ValuePlan plan_;
  Memory values_;
  Memory loss_;  // two f64: sum of losses, sum of weights
  std::unique_ptr<Stream> comm_stream_;
  Event compute_done_, backward_done_;
  std::vector<Reduction> reductions_;  // by bucket
  int32_t last_backward_ = -1;         // position of the last backward instruction

  // The step under way.
  bool in_step_ = false;
  bool broken_ = false;
  size_t position_ = 0;
  int64_t step_ = 0;
  double loss_sum_ = 0, weight_ = 0, clip_ = 1;
  std::vector<bool> gradient_begun_;   // by (micro-batch, value): has a first contribution
  std::vector<bool> weight_begun_;     // by parameter: has a first contribution
  std::vector<int32_t> added_inputs_;  // inputs of the work handed out whose gradient went to scratch
  gsel_step_report now_{};
  std::optional<gsel_step_report> report_;
  double step_began_ = 0, work_began_ = 0;
  gsel_comm_count allreduced_before_{}, loss_counts_{}, reduce_counts_{}, broadcast_counts_{};

  // What is lent with the work handed out.
  bool handed_out_ = false;
  uint64_t ticket_ = 0;
  int32_t work_kind_ = 0;
  gsel_call call_{};
  gsel_data_request request_{};
  std::vector<gsel_tensor> t_params_, t_inputs_, t_outputs_, t_d_outputs_, t_d_inputs_, t_d_params_;
  std::vector<int64_t> sample_ids_;
  std::array<char, 512> message_{};
};

}  // namespace gsel
