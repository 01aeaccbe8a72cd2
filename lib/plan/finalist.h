// plan/finalist.h: prices a configuration with the trainer's own code: the strategies compile the programs of its
// ranks, the verifier checks them together, the trainer's code forecasts memory and traffic, and a simulation of the
// programs gives the time. An error here is an error at the start of a run. Does not know how configurations are found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/simulate/simulate_job.h"
#include "program/traffic.h"
#include "train/compile/pass.h"
#include "train/state/layout.h"

namespace gsel::plan {

// Programs that were verified together, each with the model as its rank sees it.
class CompiledJob {
 public:
  // Compiles all ranks if there are up to whole_up_to, or if ranks have unequal shards; else the pipeline of rank 0,
  // whose replicas are equal to it. GSEL_ERR_CONFIG, GSEL_ERR_MODEL, GSEL_ERR_PROGRAM when a run could not start.
  static constexpr int32_t kWhole = 16;
  CompiledJob(const Model& model, const Config& config, int32_t ranks,
              const gsel_optimizer_options* optimizer = nullptr, int32_t whole_up_to = kWhole);

  const std::vector<Program>& programs() const { return programs_; }
  const Model& model_of(size_t i) const { return *models_[i]; }  // of program i
  bool is_whole() const { return microbatches_.empty(); }
  Job job() const;
  MemoryPartBytes memory_of(size_t i) const;

 private:
  const Model& model_;
  const Config& config_;
  const gsel_optimizer_options* optimizer_;
  std::vector<Program> programs_, sharing_;
  std::vector<std::shared_ptr<const Model>> models_;
  std::vector<std::vector<Microbatch>> microbatches_;  // by coordinate on the data axis; empty: the job is whole
};

struct RankForecast {
  int32_t rank = 0;
  MemoryPartBytes memory{};
  Traffic traffic;  // per step
  uint64_t bytes_sent = 0;
};

struct Finalist {
  Mesh mesh;
  bool whole = true;                // false: `ranks` are one pipeline, and the other ranks equal them
  std::vector<RankForecast> ranks;  // in ascending order
  JobTimes times;                   // of the same ranks
  double step_s = 0;                // steady state
  double bubble = 0, exposed = 0;   // parts of step_s, over ranks
  uint64_t most_bytes() const;      // device memory of the rank that needs most
};

struct Pricing {
  const Durations& durations;
  Hosts hosts{};              // by rank; restricted to the compiled ranks
  uint64_t memory_bytes = 0;  // of a device; 0: unlimited
  int32_t steps = 2;          // number of simulated steps: a step in steady state can be shorter than a single one
};

// Throws GSEL_ERR_NOMEM naming a rank that needs more memory than it has; else as CompiledJob.
Finalist price(const Model& model, const Config& config, int32_t ranks, const Pricing& pricing);
Finalist price(const CompiledJob& job, const Pricing& pricing);

}  // namespace gsel::plan
