// plan/search.h: tries every layout of a cluster, drops layouts that cannot run, and ranks the others by step time.
// Closed forms rank all layouts; the schedules of the finalists are then simulated. The result is the same on every run
// and machine. Does not know text, files or programs.
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

// The caller's decisions; all else is searched.
struct Fixed {
  std::optional<int64_t> tensor, context, data, pipeline, zero_stage, microbatch, chunks, devices;
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<ScheduleKind> schedule;
  std::optional<bool> sequence_parallel;
};

// Parses "tensor=2, zero=1, recompute=all". GSEL_ERR_ARG with the token and the accepted words.
Fixed parse_fixed(std::string_view text);

// Results from a candidate's programs, which the strategies compiled and the verifier accepted.
struct Programs {
  // From a simulation, where data collectives overlap as far as their order allows. Not used for ranking, since not all
  // candidates are simulated.
  double step_s = 0;
  uint64_t memory_bytes = 0;  // the trainer's own forecast, for the rank that needs most
  uint64_t bytes_sent = 0;    // per step, by the rank that sends most
};

struct Candidate {
  Layout layout;
  Shares shares;
  StageMemory memory;  // of the stage that comes nearest to its device's memory
  int32_t stage = 0;
  double capacity = 0;  // bytes of that stage's device
  TimeForecast time;
  double simulated_s = 0;                 // simulated schedule, for finalists with a pipeline; 0: not simulated
  std::optional<Programs> programs = {};  // of finalists whose programs are not too large
  bool may_exceed = false;                // not compiled, and the programs may need more memory than there is
  bool in_short = false;                  // programs of a few micro-batches were compiled and accepted

  double step_s() const { return time.step(); }
  double short_bytes() const { return memory.total() - capacity; }  // above 0: does not fit
};

// How many layouts each rule dropped.
struct Dropped {
  int64_t tried = 0;
  int64_t batch = 0;     // the batch is not divisible by the replicas
  int64_t replicas = 0;  // fewest replicas of these
  int64_t heads = 0;     // the tensor axis would divide a head or leave the node
  int64_t layers = 0;    // more stages than layers
  int64_t memory = 0;    // a rank does not fit
  int64_t host = 0;      // offloaded state does not fit in host memory
  int64_t programs = 0;  // a strategy, the verifier or the trainer's memory forecast refused the programs
  std::string refusal;   // the first of these refusals
};

struct SearchResult {
  std::vector<Candidate> best;     // fastest first; one for each mesh, ZeRO stage and offload
  std::optional<Candidate> least;  // if nothing fits: the candidate that lacks fewest bytes
  Dropped dropped;
};

struct SearchInput {
  const Workload& workload;
  const Cluster& cluster;
  const Recipe& recipe;
  const Constants& constants;
  int64_t batch = 0;  // samples per step
  Fixed fixed;
  size_t finalists = 32;
  // Called from time to time with the number of layouts tried; false ends the search with GSEL_ERR_ABORTED.
  std::function<bool(int64_t)> progress;
};

SearchResult search(const SearchInput& input);

// Evaluates one layout, whether it fits or not: for comparisons, and for a config file. shares: if empty, follow from
// the devices.
Candidate evaluate(const SearchInput& input, const Layout& layout, const Shares& shares = {});

// The same without simulating the schedule.
Candidate by_closed_forms(const SearchInput& input, const Layout& layout, const Shares& shares);

// opt_out.cc: whether the tensor axis divides a unit of layers, compared with the other choice.
struct UnitChoice {
  std::string name, layers;  // as in Unit
  bool excluded = false;
  double other_step_s = 0, other_bytes = 0;  // cost of the other choice minus that of this one
  std::string why;  // excluded: what grows and shrinks in the step; else the effect of opting out, or why it cannot
};
std::vector<UnitChoice> unit_choices(const SearchInput& input, const Candidate& candidate);
// Whether a run of the candidate's gsel.toml can leave layers whole and the forecast knows which layers.
bool can_opt_out(const SearchInput& input, const Candidate& candidate);
void choose_excluded(const SearchInput& input, Candidate& candidate);

// The stages of a candidate, with its opted-out layers. workload, recipe: of the request.
Split split_of(const Workload& workload, const Recipe& recipe, const Candidate& candidate);

// Replaces the closed form's bubble by that of the simulated schedule.
void simulate_schedule(const SearchInput& input, Candidate& candidate);

// Times of each stage of a schedule for one micro-batch; rank_of: by stage.
std::vector<StageTimes> stage_times(const SearchInput& input, const Candidate& candidate, const Split& stages,
                                    const std::vector<int32_t>& rank_of);

// How unequal devices divide the work. batch: samples per step, at least one for each replica.
Shares shares_of(const Workload& workload, const Cluster& cluster, const Layout& layout, int64_t batch);

}  // namespace gsel::plan
