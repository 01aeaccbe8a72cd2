// plan/search_schedule.cc: simulates the schedule of a candidate's stages (search.h).
#include <algorithm>

#include "plan/search.h"
#include "plan/units.h"

namespace gsel::plan {
namespace {

constexpr int64_t kRoundsSimulated = 8;  // most simulated micro-batches per stage

}  // namespace

Split split_of(const Workload& workload, const Recipe& recipe, const Candidate& c) {
  const EffectiveWorkload own(workload, c.layout.excluded);
  return split_for(*own, c.layout, c.shares, recipe);
}

std::vector<StageTimes> stage_times(const SearchInput& in, const Candidate& c, const Split& stages,
                                    const std::vector<int32_t>& rank_of) {
  std::vector<StageTimes> times(rank_of.size());
  const EffectiveWorkload workload(in.workload, c.layout.excluded);
  for (const StageRun& run : stages.runs) {
    const StageTime t =
        stage_time(*workload, stages, run, run.first, in.cluster, c.layout, c.shares, in.recipe, in.constants);
    // Chunks have equal shards of the layers; the first one has the embedding, the last one the head.
    const double chunks = c.layout.chunks;
    for (size_t s = 0; s < rank_of.size(); ++s) {
      if (rank_of[s] < run.first || rank_of[s] >= run.first + run.count) continue;
      const double ends = s == 0 || s + 1 == rank_of.size() ? 1 : 0;
      const double forward = (t.forward - t.ends_forward) / chunks + ends * t.ends_forward;
      const double backward = (t.backward - t.ends_backward) / chunks + ends * t.ends_backward;
      times[s] = {forward, backward / 2, backward / 2};
    }
  }
  return times;
}

// Replaces the closed form's bubble by that of the simulated schedule. Once all ranks are busy, each further
// micro-batch takes as long as the one before it: the busiest rank's time, or longer if chunks differ.
void simulate_schedule(const SearchInput& in, Candidate& c) {
  const Layout& l = c.layout;
  if (l.pipeline == 1) return;
  const Split stages = split_of(in.workload, in.recipe, c);
  const auto run = [&](int64_t microbatches) {
    const gsel::Schedule schedule =
        make_schedule(name_of(l.schedule), l.pipeline, static_cast<int32_t>(microbatches), l.chunks);
    return gsel::simulate(schedule, stage_times(in, c, stages, schedule.rank_of), 0);
  };
  const int64_t some = std::min(l.microbatches, kRoundsSimulated * l.pipeline);
  const Simulation simulation = run(some);
  double busiest = *std::ranges::max_element(simulation.busy);
  c.simulated_s = simulation.makespan;
  if (l.microbatches > some) {
    const int64_t fewer = some / 2;
    const auto more = static_cast<double>(l.microbatches - some);
    c.simulated_s += more * (simulation.makespan - run(fewer).makespan) / static_cast<double>(some - fewer);
    busiest += more * busiest / static_cast<double>(some);
  }
  c.time[TimePart::bubble] = std::max(0.0, c.simulated_s - busiest);
}

}  // namespace gsel::plan
