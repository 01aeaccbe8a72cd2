// program/timeline/timeline_chart.cc: charts of recorded steps: joins a rank's instructions to actions. A backward
// counts as a half if any rank ran the other half separately, else as the whole.
#include "program/timeline/timeline_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include "base/text.h"
#include "program/timeline/timeline.h"

namespace gsel {
namespace {

constexpr int32_t kActionsThread = 2;  // of Chrome, below the rank's own

// Consecutive instructions of one stage and micro-batch in one direction.
struct Run {
  char kind;  // F; B: any backward; S: the end of a step
  int32_t stage, microbatch;
  std::vector<ChartAction> parts;  // F, S, I, W, or B: an undivided backward
  bool begun = false;              // has more than inputs
};

// F, I, W, B, S, or '-': not computing.
char kind_of(const std::string& instruction) {
  static const std::map<std::string, char> kinds{
      {"input", 'F'},           {"forward", 'F'},  {"recompute", 'I'}, {"backward_input", 'I'},
      {"backward_weight", 'W'}, {"backward", 'B'}, {"norm", 'S'},      {"step", 'S'}};
  const auto it = kinds.find(instruction);
  return it == kinds.end() ? '-' : it->second;
}

// From an instruction's text, "... mb=3 ..."; -1 if it has none.
int32_t microbatch_of(const std::string& text) {
  const size_t at = text.find(" mb=");
  int32_t value = -1;
  if (at != text.npos) std::from_chars(text.data() + at + 4, text.data() + text.size(), value);
  return value;
}

struct Recorded {
  const Track* track;
  std::vector<Run> runs;
  std::vector<ChartMark> marks;
  double busy = 0;  // without the end of the step
};

// Inputs have no stage.
bool continues(const Run& run, char kind, int32_t stage, int32_t microbatch) {
  return run.kind == kind && run.microbatch == microbatch && (run.stage == stage || run.stage < 0 || stage < 0);
}

Recorded read_track(const Track& track, double zero) {
  Recorded out{&track, {}, {}, 0};
  std::vector<const Span*> order;
  for (const Span& span : track.spans) order.push_back(&span);
  std::ranges::stable_sort(order, {}, &Span::begin_us);
  for (const Span* span : order) {
    const char part = kind_of(span->kind);
    const double begin = zero + span->begin_us, end = zero + span->end_us;
    if (part == '-') {
      out.marks.push_back({span->kind, span->text, begin, end});
      if (!out.runs.empty() && !out.runs.back().begun) out.runs.pop_back();  // drops inputs filled before the wait
      continue;
    }
    const char kind = part == 'F' || part == 'S' ? part : 'B';
    const int32_t microbatch = part == 'S' ? -1 : microbatch_of(span->text);
    const int32_t stage = part == 'S' ? -1 : span->stage;
    if (part != 'S') out.busy += end - begin;
    if (out.runs.empty() || !continues(out.runs.back(), kind, stage, microbatch))
      out.runs.push_back({kind, stage, microbatch, {}});
    if (stage >= 0) out.runs.back().stage = stage;
    out.runs.back().begun = out.runs.back().begun || span->kind != "input";
    out.runs.back().parts.push_back({part, stage, 0, microbatch, begin, end});
  }
  return out;
}

// The first of the consecutive weight halves at the end of a run.
size_t weights_of(const Run& run) {
  size_t from = run.parts.size();
  while (from > 0 && run.parts[from - 1].kind == 'W') --from;
  return from;
}

bool has(const Run& run, char kind) {
  return std::ranges::find(run.parts, kind, &ChartAction::kind) != run.parts.end();
}

ChartAction joined(const Run& run, size_t from, size_t to, char kind) {
  return {kind, run.stage, 0, run.microbatch, run.parts[from].begin, run.parts[to - 1].end};
}

void add_actions(const Run& run, bool halves, std::vector<ChartAction>& actions) {
  const size_t n = run.parts.size(), weights = weights_of(run);
  if (run.kind != 'B') {
    actions.push_back(joined(run, 0, n, run.kind));
  } else if (weights == 0) {
    actions.push_back(joined(run, 0, n, 'W'));
  } else if (!halves || std::ranges::count(run.parts, 'W', &ChartAction::kind) > static_cast<ptrdiff_t>(n - weights) ||
             !has(run, 'I')) {
    actions.push_back(joined(run, 0, n, 'B'));
  } else {
    actions.push_back(joined(run, 0, weights, 'I'));
    if (weights < n) actions.push_back(joined(run, weights, n, 'W'));
  }
}

std::string row_name(const Track& track, bool replicas) {
  return replicas ? fmt::format("{}: pipeline rank {} of replica {}", track.process_name,
                                track.coordinates.pipeline_rank, track.coordinates.replica)
                  : track.process_name;
}

void name_it(Chart& chart, const std::vector<Recorded>& recorded) {
  double begin = std::numeric_limits<double>::max(), end = 0, busiest = 0;
  std::set<int32_t> microbatches;
  for (size_t i = 0; i < recorded.size(); ++i) {
    busiest = std::max(busiest, recorded[i].busy);
    for (const ChartAction& action : chart.rows[i].actions) {
      if (action.kind == 'S') continue;
      begin = std::min(begin, action.begin);
      end = std::max(end, action.end);
      microbatches.insert(action.microbatch);
    }
  }
  const Coordinates& coordinates = recorded.front().track->coordinates;
  const std::string chunks = chart.chunks > 1 ? fmt::format(", {} each", with_noun(chart.chunks, "chunk")) : "",
                    replicas = coordinates.n_replicas > 1 ? fmt::format(", {} times", coordinates.n_replicas) : "";
  const double makespan = std::max(end - begin, 0.0);
  chart.process_name = fmt::format("recorded: {} x {}{}{}", with_noun(coordinates.n_ranks, "stage"),
                                   with_noun(microbatches.size(), "micro-batch"), chunks, replicas);
  chart.title = fmt::format("{}: bubble {:.1f} % of makespan", chart.process_name,
                            makespan > 0 ? (makespan - busiest) / makespan * 100 : 0.0);
  chart.details = fmt::format("makespan {:.3f} ms, busiest rank {:.3f} ms, from the first forward to the last backward",
                              makespan * 1e-3, busiest * 1e-3);
}

}  // namespace

void number_chunks(std::vector<ChartAction>& actions, int32_t& most) {
  std::map<int32_t, int32_t> chunks;
  for (const ChartAction& action : actions)
    if (action.kind != 'S') chunks[action.stage] = 0;
  int32_t n = 0;
  for (auto& [stage, chunk] : chunks) chunk = n++;
  for (ChartAction& action : actions) action.chunk = action.kind == 'S' ? 0 : chunks[action.stage];
  most = std::max(most, n);
}

std::string to_text(const ChartAction& action) {
  const std::string stage = action.stage >= 0 ? std::to_string(action.stage) : "",
                    microbatch = action.microbatch >= 0 ? std::to_string(action.microbatch) : "";
  return stage + (action.kind == 'S' ? "step" : std::string(1, action.kind)) + microbatch;
}

std::string amount_text(double amount) {
  return fmt::format("{:.6g}", amount + 0.0);  // turns -0 into 0
}

std::vector<Chart> recorded_charts(const Timeline& timeline) {
  const std::vector<double> zeros = common_zeros(timeline);
  std::vector<Recorded> recorded;
  for (size_t i = 0; i < timeline.tracks.size(); ++i)
    if (const Track& track = timeline.tracks[i]; track.of_pipeline() && track.thread == 0 && !track.spans.empty())
      recorded.push_back(read_track(track, zeros[i]));
  if (recorded.empty()) return {};
  std::ranges::stable_sort(recorded, {}, [](const Recorded& r) {
    return std::pair(r.track->coordinates.replica, r.track->coordinates.pipeline_rank);
  });
  const bool halves = std::ranges::any_of(recorded, [](const Recorded& r) {
    return std::ranges::any_of(r.runs, [](const Run& run) { return run.kind == 'B' && weights_of(run) == 0; });
  });
  Chart chart;
  chart.measured = true;
  for (Recorded& r : recorded) {
    ChartRow row{row_name(*r.track, r.track->coordinates.n_replicas > 1),
                 {},
                 r.track->process,
                 kActionsThread,
                 {},
                 std::move(r.marks)};
    for (const Run& run : r.runs) add_actions(run, halves, row.actions);
    number_chunks(row.actions, chart.chunks);
    chart.rows.push_back(std::move(row));
  }
  name_it(chart, recorded);
  return {std::move(chart)};
}

}  // namespace gsel
