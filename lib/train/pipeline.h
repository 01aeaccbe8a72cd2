// train/pipeline.h: runs a model's stages as a pipeline over all ranks of a communicator, without a trainer. The
// strategies of the pipeline and the tensor axis compile the model; the program is verified and executed like a
// training step without optimizer. Does not know schedules.
#pragma once

#include <gsel/pipeline.h>

#include <memory>
#include <optional>
#include <vector>

#include "base/os.h"
#include "train/compile/pass.h"
#include "train/execute/executor.h"
#include "train/optimize/optimizer.h"
#include "train/ranks/agree.h"

namespace gsel {

// A copy of gsel_pipeline_options.
struct PipelineSettings {
  std::string schedule = "1f1b";  // name, or a file
  int32_t chunks = 0;
  int32_t microbatches = 0;
  int64_t microbatch_samples = 0;
  int32_t tensor_ranks = 1;
  std::vector<int32_t> first_layers;
  std::string timeline;
  DataSource data;

  bool reads_file() const;
};

// The equivalent configuration of a trainer: tensor_ranks ranks per pipeline rank; the batch is that of one run. Layer
// names become ids.
Config to_config(const PipelineSettings& settings, const Model& model, int32_t ranks);

class Pipeline {
 public:
  // A collective over comm.
  Pipeline(Communicator& comm, std::shared_ptr<Model> model, PipelineSettings settings);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // what: GSEL_FORWARD, GSEL_FORWARD_BACKWARD.
  gsel_pipeline_report run(int32_t what);
  // This rank's stages, with times of the last run.
  int32_t stage_count() const;
  gsel_pipeline_stage stage(int32_t i) const;
  const Program& program() const { return program_; }

 private:
  Compiled compile_own();
  void make_executor(std::shared_ptr<const Model> local, std::vector<Program> programs);
  void check_settings() const;
  void check_model() const;
  void check_backward_is_called(const Layer& layer) const;
  void refuse_run(int32_t what) const;
  bool is_between_ranks(const gsel_instr& instr) const;
  Particulars particulars(uint64_t files_key) const;
  gsel_pipeline_report report() const;

  const uint64_t fork_generation_ = os::fork_generation();
  Communicator& comm_;
  std::shared_ptr<Model> model_;
  const PipelineSettings settings_;
  Config config_;
  std::optional<Optimizer> optimizer_;  // without trained parameters
  Program program_;
  std::shared_ptr<const Model> local_;  // as this rank has it; program_ refers to it
  std::unique_ptr<Executor> executor_;
  int64_t forward_runs_ = 0;
  bool has_run_ = false;
};

}  // namespace gsel
