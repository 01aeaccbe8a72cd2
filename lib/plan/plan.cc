// plan/plan.cc: makes a plan, and computes the figures of its candidates.
#include "plan/plan.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/rows.h"
#include "schedule/simulate.h"

namespace gsel::plan {
namespace {

constexpr double kMostInstructions = 100'000;  // most instructions of later finalists that are compiled and simulated
constexpr double kMostOfFirst = 600'000;       // most instructions of the first finalist: about a second

constexpr int64_t kFewRows = 3;  // with fewer own measurements, the error after the fit is no error band

}  // namespace

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Plan::Plan(Request request, const std::function<bool(int64_t)>& progress) : request_(std::move(request)) {
  search_orders(progress);
  compile_finalists();
  check_others();
  check_first();
}

namespace {

// Orders of unequal devices that are worth a search: as named; largest memory first, which suits stages and omits the
// smallest device if fewer are better; fastest first.
std::vector<std::vector<int32_t>> orders_of(const Cluster& cluster, bool reorder) {
  std::vector<int32_t> named(static_cast<size_t>(cluster.size()));
  std::iota(named.begin(), named.end(), 0);
  std::vector<std::vector<int32_t>> orders{named};
  if (!reorder || cluster.uniform() || cluster.nodes() > 1) return orders;
  const auto by = [&](auto&& of) {
    std::vector<int32_t> order = named;
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return of(cluster.kind(a)) > of(cluster.kind(b)); });
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(std::move(order));
  };
  by([](const DeviceKind& kind) { return kind.memory_bytes; });
  by([](const DeviceKind& kind) { return kind.flop(2, false) * kind.matmul_share; });
  return orders;
}

// Whether a is better: something fits and is faster, or, if nothing fits, fewer bytes are missing.
bool better(const SearchResult& a, const SearchResult& b) {
  if (a.best.empty() != b.best.empty()) return !a.best.empty();
  if (!a.best.empty()) return a.best.front().step_s() < b.best.front().step_s();
  return a.least && (!b.least || a.least->short_bytes() < b.least->short_bytes());
}

}  // namespace

void Plan::search_orders(const std::function<bool(int64_t)>& progress) {
  const std::vector<int32_t> kinds = request_.cluster.devices;
  std::optional<SearchResult> best;
  for (const std::vector<int32_t>& order : orders_of(request_.cluster, request_.reorder)) {
    Request tried = request_;
    for (size_t i = 0; i < order.size(); ++i) tried.cluster.devices[i] = kinds[static_cast<size_t>(order[i])];
    SearchInput in{tried.workload, tried.cluster, tried.recipe, tried.constants,
                   tried.batch,    tried.fixed,   32,           progress};
    SearchResult result = search(in);
    if (best) result.dropped.tried += best->dropped.tried;
    if (best && !better(result, *best)) {
      best->dropped.tried = result.dropped.tried;
      continue;
    }
    best = std::move(result);
    request_.cluster.devices = tried.cluster.devices;
    request_.order = std::ranges::is_sorted(order) ? std::vector<int32_t>() : order;
  }
  result_ = std::move(*best);
}

std::string Plan::why_not_compiled(const Candidate& c) const {
  const Workload& w = request_.workload;
  if (!request_.model)
    return w.heads > 0 ? fmt::format("{} are too many", with_noun(w.layers(), "layer"))
                       : "the model is known by its costs alone";
  if (c.layout.recompute == Recompute::selective) return "no gsel.toml says selective recomputation";
  if (c.layout.ranks() > kMostCompiled)
    return fmt::format("{} are too many; up to {} are compiled", with_noun(c.layout.ranks(), "rank"), kMostCompiled);
  if (const double n = instructions_of(*request_.model, c.layout); n > kMostOfFirst)
    return fmt::format("about {:.0f} instructions are too many; up to {:.0f} are compiled", n, kMostOfFirst);
  return {};
}

void Plan::verify(const Candidate& candidate) const {
  if (!candidate.programs && why_not_compiled(candidate).empty()) compiled(candidate);
}

// The candidate with the results of its programs; throws when a run would refuse the programs.
Candidate Plan::compiled(Candidate c) const {
  const Finalist f = [&] {
    try {
      return price(input(), c, toml_of(request_, c), *request_.model);
    } catch (const Error& error) {
      if (error.code() != GSEL_ERR_NOMEM) throw;
      throw Error(GSEL_ERR_NOMEM, first_line(error.message())).about_rank(error.rank());
    }
  }();
  uint64_t most_sent = 0;
  std::vector<RankMemory> ranks;
  for (const RankForecast& rank : f.ranks) {
    most_sent = std::max(most_sent, rank.bytes_sent);
    ranks.push_back({rank.rank, total_bytes(rank.memory)});
  }
  check_ranks(c, ranks);
  // Layer times include the wait for launches.
  const Constants& k = request_.constants;
  const double step_s = f.step_s + c.time[TimePart::messages] + k.step_s * k.compute_scale;
  c.programs = Programs{step_s, f.most_bytes(), most_sent};
  return c;
}

// Compiles as many finalists as there is time for, and always the first unless it is very large. Refused candidates are
// dropped. The order stays: a simulation of programs knows what overlaps, while the forecast knows the measurements,
// and only some candidates have a simulation.
void Plan::compile_finalists() {
  if (!request_.model) return;
  double instructions = 0;
  std::vector<Candidate>& all = result_.best;
  const auto wanted = [&](const Candidate& c, bool first) {
    if (c.programs || !why_not_compiled(c).empty()) return false;
    return first || (instructions += instructions_of(*request_.model, c.layout)) <= kMostInstructions;
  };
  const auto try_one = [&](size_t i) {
    try {
      all[i] = compiled(all[i]);
      return true;
    } catch (const Error& error) {
      drop(i, error);
      return false;
    }
  };
  for (size_t i = 0; i < all.size();) i += !wanted(all[i], i == 0) || try_one(i);
}

void calibrate(Request& request, std::string_view rows, const std::string& file) {
  const std::string device_class = request.cluster.kinds.front().device_class;
  if (device_class.empty())
    fail(GSEL_ERR_ARG,
         "measured rows are of devices that are known by name, and {} is known by its speed alone; plan without them",
         request.cluster.kinds.front().name);
  for (const Calibration& one : calibrations(rows, file)) {
    if (one.device_class != device_class) continue;
    request.constants.compute_scale *= one.scale;
    request.constants.link_scale *= one.scale;
    request.constants.rows = static_cast<int32_t>(one.rows);
    // A factor from one row fits that row exactly, which says nothing about others.
    const double least = one.rows < kFewRows ? request.constants.spread : 0;
    request.constants.spread = std::max(one.error_after, least);
    request.constants.covered = one.covered;
    request.calibrated_on =
        fmt::format("{}: a scalar of {:.3f}, errors {:.1f} % before and {:.1f} % after it",
                    with_noun(one.rows, "measured row"), one.scale, one.error_before * 100, one.error_after * 100);
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
  const Split stages = split_of(request_.workload, request_.recipe, c);
  const gsel::Schedule schedule =
      make_schedule(gsel::plan::name_of(l.schedule), l.pipeline, static_cast<int32_t>(l.microbatches), l.chunks);
  Simulation simulation = gsel::simulate(schedule, stage_times(input(), c, stages, schedule.rank_of), 0);
  simulation.unit_s = 1;
  return to_json(simulation);
}

}  // namespace gsel::plan
