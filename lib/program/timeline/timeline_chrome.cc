// program/timeline/timeline_chrome.cc: a timeline as Chrome's trace events, which Perfetto reads too: a process of
// Chrome's for each rank, a thread for each lane; for each simulated schedule a process with a thread for each rank.
// Source: "Trace Event Format", the document of Chromium's tracing team.
#include <nlohmann/json.hpp>

#include "program/timeline/timeline.h"

namespace gsel {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnit = 1000;  // of a simulation's time, in microseconds

Json name_of(const char* what, int32_t process, int32_t thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event_of(const Lane& lane, double zero_us, const Span& span) {
  Json event{{"name", span.name}, {"cat", span.kind}, {"ph", "X"}, {"ts", zero_us + span.begin_us}};
  event["dur"] = span.end_us - span.begin_us;
  event["pid"] = lane.process;
  event["tid"] = lane.thread;
  event["args"] = {{"text", span.text}};
  if (!span.note.empty()) event["args"]["note"] = span.note;
  return event;
}

// A recorded step's ranks have names already.
void add_chart(const Chart& chart, Json& events) {
  for (const ChartRow& row : chart.rows) {
    if (!chart.measured) events.push_back(name_of("process_name", row.process, row.row, chart.process_name));
    events.push_back(name_of("thread_name", row.process, row.row, chart.measured ? "actions" : row.name));
    const double unit = chart.measured ? 1 : kUnit;
    for (const ChartAction& action : row.actions)
      events.push_back({{"name", to_text(action)},
                        {"cat", std::string(1, action.kind)},
                        {"ph", "X"},
                        {"ts", action.begin * unit},
                        {"dur", (action.end - action.begin) * unit},
                        {"pid", row.process},
                        {"tid", row.row},
                        {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}}}});
  }
}

}  // namespace

std::string to_chrome(const Timeline& timeline) {
  Json events = Json::array();
  const std::vector<double> zeros = common_zeros(timeline);
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    const Lane& lane = timeline.lanes[i];
    events.push_back(name_of("process_name", lane.process, lane.thread, lane.process_name));
    events.push_back(name_of("thread_name", lane.process, lane.thread, lane.name));
    for (const Span& span : lane.spans) events.push_back(event_of(lane, zeros[i], span));
  }
  for (const Chart& chart : timeline.schedules) add_chart(chart, events);
  for (const Chart& chart : recorded_charts(timeline)) add_chart(chart, events);
  const Json json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gsel
