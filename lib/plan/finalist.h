// plan/finalist.h: a configuration priced by what the trainer itself is made of: its ranks' programs are compiled by
// the strategies, verified together, and their memory and traffic forecast by the trainer's own code; a simulation of
// the programs gives the time. What is refused here would be refused at the start of a run. Does not know how
// configurations are found.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/simulate/simulate_job.h"
#include "program/timeline/timeline.h"
#include "program/traffic.h"
#include "train/compile/pass.h"
#include "train/state/layout.h"

namespace gsel::plan {

// Programs that were verified together, each with the model as its rank has it.
class CompiledJob {
 public:
  // Of all ranks up to so many, or where ranks have unequal shares; else of the pipeline of rank 0, whose replicas do
  // the same. GSEL_ERR_CONFIG, GSEL_ERR_MODEL, GSEL_ERR_PROGRAM where no run could begin.
  static constexpr int32_t kWhole = 16;
  CompiledJob(const Model& model, const Config& config, int32_t ranks,
              const gsel_optimizer_options* optimizer = nullptr, int32_t whole_up_to = kWhole);

  const std::vector<Program>& programs() const { return programs_; }
  const Model& model_of(size_t i) const { return *models_[i]; }  // of a program
  bool is_whole() const { return microbatches_.empty(); }
  Job job() const;
  MemoryPartBytes memory_of(size_t i) const;

 private:
  const Model& model_;
  const Config& config_;
  const gsel_optimizer_options* optimizer_;
  std::vector<Program> programs_, sharing_;
  std::vector<std::shared_ptr<const Model>> models_;
  std::vector<std::vector<Microbatch>> microbatches_;  // by coordinate on the data axis; none: the job is whole
};

struct RankForecast {
  int32_t rank = 0;
  MemoryPartBytes memory{};
  Traffic traffic;  // of a step
  uint64_t bytes_sent = 0;
};

struct Finalist {
  Mesh mesh;
  bool whole = true;                // else the ranks below are one pipeline, and all others do as these do
  std::vector<RankForecast> ranks;  // in ascending order
  JobTimes times;                   // of the same ranks
  double step_s = 0;                // of a step among others
  double bubble = 0, exposed = 0;   // shares of it, over ranks
  uint64_t most_bytes() const;      // of device memory, on the rank that needs most
};

struct Pricing {
  const Durations& durations;
  Hosts hosts{};              // by rank; taken for the ranks that are compiled
  uint64_t memory_bytes = 0;  // of a device; 0: no bound
  int32_t steps = 2;          // simulated: a step among others may take less than one alone
};

// GSEL_ERR_NOMEM where a rank needs more than there is, naming it; else as CompiledJob.
Finalist price(const Model& model, const Config& config, int32_t ranks, const Pricing& pricing);
Finalist price(const CompiledJob& job, const Pricing& pricing);

// The simulated step as records of one (docs/step.md): for `gsel trace` and for pictures.
std::vector<std::string> step_documents(const CompiledJob& job, const Finalist& finalist);
Timeline timeline_of(const CompiledJob& job, const Finalist& finalist);

}  // namespace gsel::plan
