// plan/plan.cc: makes a plan, and the numbers of its candidates.
#include "plan/plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/rows.h"
#include "program/schedule/simulate.h"

namespace gsel::plan {
namespace {

constexpr int32_t kMostCompiled = 16'384;      // whose programs are compiled
constexpr double kMostInstructions = 100'000;  // of finalists behind the first that are compiled and simulated
constexpr double kMostOfFirst = 600'000;       // of the first: about a second

}  // namespace

Plan::Plan(Request request, const std::function<bool(int64_t)>& progress) : request_(std::move(request)) {
  SearchInput in = input();
  in.progress = progress;
  result_ = search(in);
  if (request_.model) compile_finalists();
}

// The first that no run refuses, and of those behind it as many as there is time for. What is refused is dropped.
void Plan::compile_finalists() {
  double instructions = 0;
  std::vector<Candidate> kept;
  for (Candidate& c : result_.best) {
    const double mine = instructions_of(*request_.model, c.layout);
    if (!kept.empty()) instructions += mine;
    if (mine > kMostOfFirst || instructions > kMostInstructions || c.layout.ranks() > kMostCompiled) {
      kept.push_back(std::move(c));
      continue;
    }
    try {
      const Finalist f = price(input(), c, toml_of(request_, c), *request_.model);
      uint64_t most_sent = 0;
      for (const RankForecast& rank : f.ranks) {
        most_sent = std::max(most_sent, rank.bytes_sent);
        const double need = static_cast<double>(total_bytes(rank.memory)) + c.memory[MemoryPart::context];
        if (const double room = request_.cluster.kind(rank.rank).memory_bytes; need > room)
          fail(GSEL_ERR_NOMEM, "rank {} needs {} GiB by its program, and its device has {}", rank.rank, gib(need),
               gib(room));
      }
      c.programs = Programs{request_.cluster.uniform() ? f.step_s : 0, f.most_bytes(), most_sent};
      kept.push_back(std::move(c));
    } catch (const Error& error) {
      if (result_.dropped.programs++ == 0) result_.dropped.refusal = name_of(c.layout) + ": " + error.what();
    }
  }
  result_.best = std::move(kept);
}

void calibrate(Request& request, std::string_view rows, const std::string& file) {
  const std::string device_class = request.cluster.kinds.front().device_class;
  for (const Calibration& one : calibrations(rows, file)) {
    if (one.device_class != device_class) continue;
    request.constants.compute_scale *= one.scale;
    request.constants.link_scale *= one.scale;
    request.constants.rows = static_cast<int32_t>(one.rows);
    request.constants.spread = one.error_after;
    request.calibrated_on = fmt::format("{} of {}: a scalar of {:.3f}, errors {:.1f} % before and {:.1f} % behind it",
                                        with_noun(one.rows, "measured row"), file, one.scale, one.error_before * 100,
                                        one.error_after * 100);
    return;
  }
  fail(GSEL_ERR_CONFIG, "{} has no time of a step on {}; rows with its name in the column gpu are needed", file,
       request.cluster.kinds.front().name);
}

Rates rates_of(const Request& request, const Candidate& c) {
  Rates r{};
  const Layout& l = c.layout;
  r.step_s = c.step_s();
  r.samples_per_s = static_cast<double>(request.batch) / r.step_s;
  r.tokens_per_s = r.samples_per_s * static_cast<double>(request.workload.sequence);
  const double forward = request.workload.flop_forward() * static_cast<double>(request.batch);
  double again = 0;
  for (const Block& block : request.workload.blocks) {
    if (block.kind != BlockKind::layer) continue;
    const auto n = static_cast<double>(block.count * request.batch);
    if (l.recompute == Recompute::full) again += n * block.costs.flop();
    if (l.recompute == Recompute::selective) again += n * block.costs.flop_core;
  }
  double peak = 0;
  for (int32_t rank = 0; rank < l.ranks(); ++rank) peak += request.cluster.kind(rank).flop_16;
  if (peak > 0) {
    r.mfu = 3 * forward / r.step_s / peak;
    r.hfu = (3 * forward + again) / r.step_s / peak;
  }
  r.bubble = c.time[TimePart::bubble] / r.step_s;
  r.exposed = (c.time[TimePart::tensor] + c.time[TimePart::messages] + c.time[TimePart::data]) / r.step_s;
  return r;
}

std::string Plan::simulation_json(size_t i) const {
  const Candidate& c = candidates().at(i);
  const Layout& l = c.layout;
  if (l.pipeline == 1)
    fail(GSEL_ERR_ARG, "candidate {} is {}, which has no pipeline to draw; fix one, such as pipeline=2", i + 1,
         name_of(l));
  const Split stages = c.shares.stage_layers.empty() ? split(request_.workload, l.pipeline)
                                                     : split_as(request_.workload, c.shares.stage_layers);
  const gsel::Schedule schedule =
      make_schedule(gsel::plan::name_of(l.schedule), l.pipeline, static_cast<int32_t>(l.microbatches), l.chunks);
  return to_json(simulate(schedule, stage_times(input(), c, stages, schedule.rank_of), 0));
}

}  // namespace gsel::plan
