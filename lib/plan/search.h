// plan/search.h: tries every layout of a cluster, drops those that cannot run, and ranks the others by the time of a
// step. Closed forms rank all; the schedule of each finalist is then simulated. The same result on every run and
// machine. Does not know text, files and programs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"
#include "plan/constants.h"
#include "plan/layout.h"
#include "plan/memory.h"
#include "plan/recipe.h"
#include "plan/split.h"
#include "plan/time.h"
#include "plan/workload.h"
#include "schedule/simulate.h"

namespace gsel::plan {

// What the caller has decided; the rest is searched.
struct Fixed {
  std::optional<int64_t> tensor, context, data, pipeline, zero_stage, microbatch, chunks, devices;
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<ScheduleKind> schedule;
  std::optional<bool> sequence_parallel;
};

// "tensor=2, zero=1, recompute=all". GSEL_ERR_ARG with the token and what is accepted.
Fixed parse_fixed(std::string_view text);

// What the programs of a candidate say, which strategies compiled and the verifier accepted.
struct Programs {
  // Simulated: data collectives overlap as far as their order allows. Candidates are ranked by the forecast instead,
  // since not all of them are simulated.
  double step_s = 0;
  uint64_t memory_bytes = 0;  // by the trainer's own forecast, of the rank that needs most
  uint64_t bytes_sent = 0;    // of a step, by the rank that sends most
};

struct Candidate {
  Layout layout;
  Shares shares;
  StageMemory memory;  // of the stage that is nearest to its device's memory
  int32_t stage = 0;
  double capacity = 0;  // bytes of that device
  TimeForecast time;
  double simulated_s = 0;                 // of the schedule, for finalists in a pipeline; 0: not simulated
  std::optional<Programs> programs = {};  // of finalists whose programs are not too large
  bool may_exceed = false;                // programs that were not compiled may need more memory than there is
  bool in_short = false;                  // programs of a few micro-batches of it were compiled and accepted

  double step_s() const { return time.step(); }
  double short_bytes() const { return memory.total() - capacity; }  // above 0: it does not fit
};

// How many layouts each rule dropped.
struct Dropped {
  int64_t tried = 0;
  int64_t batch = 0;     // the batch does not divide by its replicas
  int64_t replicas = 0;  // the fewest of these
  int64_t heads = 0;     // the tensor axis would cut a head or leave the node
  int64_t layers = 0;    // more stages than layers
  int64_t memory = 0;    // a rank does not fit
  int64_t host = 0;      // offloaded state does not fit the host
  int64_t programs = 0;  // a strategy, the verifier or the trainer's own forecast of memory refused the programs
  std::string refusal;   // of the first of these
};

struct SearchResult {
  std::vector<Candidate> best;     // fastest first: the fastest of each mesh, stage of ZeRO and offload
  std::optional<Candidate> least;  // of those that do not fit: the one that is short of fewest bytes
  Dropped dropped;
};

struct SearchInput {
  const Workload& workload;
  const Cluster& cluster;
  const Recipe& recipe;
  const Constants& constants;
  int64_t batch = 0;  // samples of a step
  Fixed fixed;
  size_t finalists = 32;
  // Called now and then with how many layouts were tried; false ends the search with GSEL_ERR_ABORTED.
  std::function<bool(int64_t)> progress;
};

SearchResult search(const SearchInput& input);

// One layout, whether it fits or not: for comparisons, and for what a config file says. shares: empty ones are those of
// the devices.
Candidate evaluate(const SearchInput& input, const Layout& layout, const Shares& shares = {});

// The same without a simulation of its schedule.
Candidate by_closed_forms(const SearchInput& input, const Layout& layout, const Shares& shares);

// opt_out.cc: what the tensor axis does with a unit of layers, beside the other choice.
struct UnitChoice {
  std::string name, layers;  // as in Unit
  bool excluded = false;
  double other_step_s = 0, other_bytes = 0;  // what the other choice has more
  std::string why;  // excluded: what of the step is more and less by it; else what opting out changes, or why it cannot
};
std::vector<UnitChoice> unit_choices(const SearchInput& input, const Candidate& candidate);
// Whether a run of the candidate's gsel.toml could leave layers whole, and the forecast knows which.
bool can_opt_out(const SearchInput& input, const Candidate& candidate);
void choose_excluded(const SearchInput& input, Candidate& candidate);

// The stages of a candidate, with the layers that opted out of its tensor axis. workload, recipe: of the request.
Split split_of(const Workload& workload, const Recipe& recipe, const Candidate& candidate);

// search_schedule.cc: puts the bubble of the schedule as it runs in place of that of the closed form.
void simulate_schedule(const SearchInput& input, Candidate& candidate);

// Of each stage of a schedule for one micro-batch; rank_of: by stage.
std::vector<StageTimes> stage_times(const SearchInput& input, const Candidate& candidate, const Split& stages,
                                    const std::vector<int32_t>& rank_of);

// What unequal devices get of the work. batch: samples of a step, one or more for each replica.
Shares shares_of(const Workload& workload, const Cluster& cluster, const Layout& layout, int64_t batch);

}  // namespace gsel::plan
