// plan/plan_check.cc: whether a run accepts candidates whose programs are not compiled whole: by those of a few
// micro-batches. What it refuses is dropped.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr double kMostOfShortFirst = 400'000;  // of a short step of the first: some seconds
constexpr double kMostOfChecks = 80'000;       // of short steps whose memory is looked at
constexpr double kMoreOfWhole = 0.06;          // that whole steps were seen to need, since buffers lie less well
constexpr int64_t kMoreInShort = 8;            // micro-batches of a short step beside those that a stage holds
// Programs of stages have been seen to need up to 21 % more memory than closed forms say, of ZeRO-3 up to 13 %, of both
// up to 29 %, others up to 6 %.
constexpr double kMarginOfStages = 0.25, kMarginOfGathers = 0.15, kMarginOfBoth = 0.35, kMargin = 0.1;

// Micro-batches of a short step that needs as much memory; 0: there is none.
int64_t few_microbatches(const Candidate& c) {
  const Layout& l = c.layout;
  if (l.pipeline > 1 && l.schedule == ScheduleKind::gpipe) return 0;  // holds all of them
  // A stage holds as many as there are stages behind it, more of chunks; some more show what messages and gaps take.
  const int64_t stages = std::max<int64_t>(1, l.pipeline);
  const int64_t more = std::min(stages, kMoreInShort);
  const int64_t few = std::min(l.microbatches, l.chunks > 1 ? 2 * stages : stages + more);
  for (const double weight : c.shares.data_weights) {
    const double each = weight / static_cast<double>(l.microbatches);
    if (each != std::floor(each)) return 0;
  }
  return few;
}

// Of all programs that are compiled for it, about: of a pipeline and of the ranks that share its first stage, or, of
// unequal devices, of all ranks. A rank has a part of the layers.
double instructions_in_short(const Request& request, const Candidate& c) {
  Layout few = c.layout;
  few.microbatches = few_microbatches(c);
  const double stages = few.pipeline, replicas = few.ranks() / stages;
  const double pipelines = request.cluster.uniform() ? 1 + few.tensor * few.context / stages : replicas;
  return instructions_of(*request.model, few) / stages * pipelines;
}

bool can_check_in_short(const Request& request, const Candidate& c) {
  return request.model && c.layout.recompute != Recompute::selective && c.layout.ranks() <= kMostCompiled &&
         few_microbatches(c) > 0;
}

double margin_of(const Layout& l) {
  const bool gathers = l.zero_stage == 3;
  if (l.pipeline > 1) return gathers ? kMarginOfBoth : kMarginOfStages;
  return gathers ? kMarginOfGathers : kMargin;
}

}  // namespace

double Plan::check_ranks(const Candidate& c, const std::vector<RankMemory>& ranks) const {
  double most = 0;
  for (const RankMemory& rank : ranks) {
    const double need = static_cast<double>(rank.bytes) + c.memory[EstimatedPart::context];
    if (const double room = request_.cluster.kind(rank.rank).memory_bytes; need > room)
      fail(GSEL_ERR_NOMEM, "rank {} needs {} GiB by its program, and its device has {}", rank.rank, gib(need),
           gib(room));
    else if (room > 0)
      most = std::max(most, need / room);
  }
  return most;
}

// A step of few micro-batches needs the memory of a whole one: a stage holds no more of them than there are stages
// ahead of it. An error where a run refuses them; false where the whole step may still need more than there is.
bool Plan::check_in_short(const Candidate& c) const {
  Candidate few = c;
  Layout& l = few.layout;
  l.microbatches = few_microbatches(c);
  Request request = request_;
  request.batch = c.shares.data_weights.empty() ? l.batch() : request_.batch / c.layout.microbatches * l.microbatches;
  for (double& weight : few.shares.data_weights)
    weight = weight / static_cast<double>(c.layout.microbatches) * static_cast<double>(l.microbatches);
  const Config config = parse_config(toml_of(request, few), "plan");
  const CompiledJob job(*request_.model, config, l.ranks(), nullptr, 1);
  std::vector<RankMemory> ranks;
  for (size_t i = 0; i < job.programs().size(); ++i)
    ranks.push_back({job.programs()[i].rank, total_bytes(job.memory_of(i))});
  const double most = check_ranks(c, ranks);
  return l.microbatches == c.layout.microbatches || most * (1 + kMoreOfWhole) <= 1;
}

// Of candidates that were not compiled: a few micro-batches of those whose closed form is near the bound, first ones
// first. What is refused is dropped, and what was not looked at is marked.
void Plan::check_others() {
  std::vector<Candidate>& all = result_.best;
  double instructions = 0;
  for (size_t i = 0; i < all.size();) {
    Candidate& c = all[i];
    if (c.programs || c.memory.total() * (1 + margin_of(c.layout)) <= c.capacity) {
      ++i;
      continue;
    }
    c.may_exceed = true;
    try {
      const double more = can_check_in_short(request_, c) ? instructions_in_short(request_, c) : kMostOfChecks + 1;
      if (instructions + more <= kMostOfChecks) {
        instructions += more;
        c.may_exceed = !check_in_short(c);
        c.in_short = true;
      }
      ++i;
    } catch (const Error& error) {
      drop(i, error);
    }
  }
}

// What came to be the first is compiled, or, where it is very large, a few micro-batches of it.
void Plan::check_first() {
  std::vector<Candidate>& all = result_.best;
  while (!all.empty() && !all[0].programs && !all[0].in_short) {
    Candidate& c = all[0];
    bool sure = true;
    try {
      if (why_not_compiled(c).empty())
        c = compiled(c);
      else if (!can_check_in_short(request_, c) || instructions_in_short(request_, c) > kMostOfShortFirst)
        return;
      else
        sure = check_in_short(c), c.in_short = true;
      c.may_exceed = !sure;
      return;
    } catch (const Error& error) {
      drop(0, error);
    }
  }
}

void Plan::drop(size_t i, const Error& error) {
  std::vector<Candidate>& all = result_.best;
  if (result_.dropped.programs++ == 0)
    result_.dropped.refusal = name_of(all[i].layout) + ": " + first_line(error.message());
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace gsel::plan
