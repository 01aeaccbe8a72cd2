// plan/plan_check.cc: whether a run accepts candidates whose programs are too large to compile: checks programs of a
// few micro-batches instead, and drops refused candidates.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/candidate_durations.h"
#include "plan/config_layout.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr double kMostOfShortFirst = 400'000;  // instructions of the first candidate's short step: some seconds
constexpr double kMostOfChecks = 80'000;       // instructions of all short steps whose memory is checked
constexpr double kMoreOfWhole = 0.06;          // extra memory of whole steps, as measured: buffers fit less tightly
constexpr int64_t kMoreInShort = 8;            // micro-batches of a short step beyond those that a stage holds
// Measured programs with stages need up to 21 % more memory than the closed forms, with ZeRO-3 up to 13 %, with both up
// to 29 %, all others up to 6 %.
constexpr double kMarginOfStages = 0.25, kMarginOfGathers = 0.15, kMarginOfBoth = 0.35, kMargin = 0.1;

// Number of micro-batches of a short step that needs as much memory as a whole one; 0: there is none.
int64_t few_microbatches(const Candidate& c) {
  const Layout& l = c.layout;
  if (l.pipeline > 1 && l.schedule == ScheduleKind::gpipe) return 0;  // holds all of them
  // A stage holds as many as there are stages after it, more with chunks; extra ones show memory of messages and gaps.
  const int64_t stages = std::max<int64_t>(1, l.pipeline);
  const int64_t more = std::min(stages, kMoreInShort);
  const int64_t few = std::min(l.microbatches, l.chunks > 1 ? 2 * stages : stages + more);
  for (const double weight : c.shares.data_weights) {
    const double each = weight / static_cast<double>(l.microbatches);
    if (each != std::floor(each)) return 0;
  }
  return few;
}

// Approximate number of instructions of all programs that are compiled: those of a pipeline and of the ranks that share
// its first stage, or, for unequal devices, of all ranks.
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

// A step of a few micro-batches needs the memory of a whole one: a stage holds no more than there are stages after it.
// Throws when a run refuses the programs; false when the whole step may still need more memory than there is.
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

// Checks candidates that were not compiled, best first, if their closed form is near the limit. Refused candidates are
// dropped, unchecked ones marked.
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

// Compiles the candidate that is now first, or, if it is very large, a few of its micro-batches.
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
