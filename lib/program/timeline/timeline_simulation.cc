// program/timeline/timeline_simulation.cc: a simulated schedule as a chart; see timeline_chart.h.
#include <fmt/format.h>

#include <charconv>
#include <set>

#include "base/json_object.h"
#include "base/text.h"
#include "program/timeline/timeline_chart.h"

namespace gsel {
namespace {

constexpr int32_t kMaxNumber = 9'999'999;
constexpr size_t kMaxRanks = 10'000;
constexpr double kLongestTime = 1e15;
constexpr double kShortestUnit = 1e-9, kLongestUnit = 1e6;  // seconds

// "2F0"
ChartAction parsed(JsonObject& object, const std::string& text) {
  ChartAction action;
  const char *at = text.data(), *end = at + text.size();
  const auto number = [&](int32_t& value) {
    const auto read = std::from_chars(at, end, value);
    const bool good = read.ec == std::errc() && *at != '-' && value <= kMaxNumber;
    at = read.ptr;
    return good;
  };
  bool good = number(action.stage) && at < end;
  if (good) action.kind = *at++;
  good = good && (action.kind == 'F' || action.kind == 'I' || action.kind == 'W' || action.kind == 'B') &&
         number(action.microbatch) && at == end;
  if (!good) object.refuse("action", fmt::format("is \"{}\", an action such as 2F0 is needed", text));
  return action;
}

ChartAction read_action(JsonObject object) {
  ChartAction action = parsed(object, object.require_text("action"));
  for (const char* name : {"begin", "end"})
    if (!object.has(name)) object.refuse(name, "is missing");
  action.begin = object.real("begin", 0, kLongestTime, 0);
  action.end = object.real("end", action.begin, kLongestTime, 0);
  return action;
}

std::string time_text(const Chart& chart, double time) {
  return chart.unit_s > 0 ? fmt::format("{:.3f} ms", time * chart.unit_s * 1e3) : amount_text(time);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100 + 0.0);
}

// The times F, I and W of a rank's stages; empty if ranks differ.
std::string times_text(JsonObject& root, const Chart& chart) {
  const JsonArray times = root.array("times");
  std::set<std::string> texts;
  for (const ChartRow& row : chart.rows) {
    std::set<size_t> stages;
    double sums[3] = {0, 0, 0};
    for (const ChartAction& action : row.actions) stages.insert(static_cast<size_t>(action.stage));
    for (const size_t stage : stages)
      for (size_t i = 0; i < 3; ++i) {
        std::optional<double> time;
        if (stage < times.size() && times.array(stage).size() == 3) time = times.array(stage).number(i);
        if (!time) root.refuse("times", fmt::format("has no three numbers for stage {}", stage));
        sums[i] += *time;
      }
    texts.insert(
        fmt::format("{}, {}, {}", time_text(chart, sums[0]), time_text(chart, sums[1]), time_text(chart, sums[2])));
  }
  return texts.size() == 1 ? "; F, I, W of a rank take " + *texts.begin() : "";
}

void read_row(JsonObject& root, const JsonArray& list, size_t rank, size_t& n_left, Chart& chart) {
  ChartRow row;
  row.name = fmt::format("rank {}", rank);
  row.row = static_cast<int32_t>(rank);
  for (size_t i = 0; i < list.size(); ++i) {
    if (n_left-- == 0)
      root.refuse(fmt::format("rows[{}][{}]", rank, i),
                  "is one action too many to be drawn together; use fewer micro-batches");
    row.actions.push_back(read_action(list.object(i)));
  }
  number_chunks(row.actions, chart.chunks);
  chart.rows.push_back(std::move(row));
}

}  // namespace

Chart simulated_chart(JsonObject& root, size_t n_actions) {
  for (const char* name : {"schedule", "microbatches", "times", "makespan", "rows"})
    if (!root.has(name)) root.refuse(name, "is missing");
  root.number("gsel-simulation", 1, 1, 1);
  Chart chart;
  if (root.has("unit_s")) chart.unit_s = root.real("unit_s", kShortestUnit, kLongestUnit, 1);
  const std::string schedule = root.require_text("schedule");
  const JsonArray rows = root.array("rows");
  if (rows.empty() || rows.size() > kMaxRanks)
    root.refuse("rows", fmt::format("has {}; 1 to {} can be drawn", with_noun(rows.size(), "rank"), kMaxRanks));
  for (size_t rank = 0; rank < rows.size(); ++rank) read_row(root, rows.array(rank), rank, n_actions, chart);
  const JsonArray peaks = root.array("peak_activations");
  for (size_t rank = 0; rank < std::min(rows.size(), peaks.size()); ++rank)
    if (const auto peak = peaks.number(rank)) chart.rows[rank].peak = amount_text(*peak);

  const std::string chunks = chart.chunks > 1 ? fmt::format(", {} each", with_noun(chart.chunks, "chunk")) : "";
  chart.process_name = fmt::format("{}, {} x {}{}", schedule, with_noun(rows.size(), "stage"),
                                   with_noun(root.number("microbatches", 1, kMaxNumber, 1), "micro-batch"), chunks);
  chart.title =
      fmt::format("{}: bubble {} of makespan", chart.process_name, percent(root.real("bubble_of_makespan", 0, 1, 0)));
  chart.details = fmt::format("makespan {}, busiest rank {}, longest rank span {}{}; a hop takes {}",
                              time_text(chart, root.real("makespan", 0, kLongestTime, 0)),
                              time_text(chart, root.real("ideal", 0, kLongestTime, 0)),
                              time_text(chart, root.real("longest_rank_span", 0, kLongestTime, 0)),
                              times_text(root, chart), time_text(chart, root.real("hop", 0, kLongestTime, 0)));
  return chart;
}

}  // namespace gsel
