// program/timeline/timeline_chrome.cc: writes a timeline as Chrome's trace events, which Perfetto reads too. A rank is
// a Chrome process, a track a thread. A simulated schedule is a process with a thread per rank; a single schedule with
// times in seconds has a process per rank instead. Source: "Trace Event Format", the document of Chromium's tracing
// team.

#include "base/json.h"
#include "program/timeline/timeline.h"

namespace gsel {
namespace {

constexpr double kUnit = 1000;  // microseconds per unit of a simulation whose document has none

Json name_of(const char* what, int32_t process, int32_t thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event_of(const Track& track, double zero_us, const Span& span) {
  Json event{{"name", span.name}, {"cat", span.kind}, {"ph", "X"}, {"ts", zero_us + span.begin_us}};
  event.set("dur", span.end_us - span.begin_us);
  event.set("pid", track.process);
  event.set("tid", track.thread);
  Json args{{"text", span.text}};
  if (!span.note.empty()) args.set("note", span.note);
  event.set("args", std::move(args));
  return event;
}

// Ranks of a recorded step have names already. by_rank: each rank is a separate process.
void add_chart(const Chart& chart, bool by_rank, Json& events) {
  for (const ChartRow& row : chart.rows) {
    const int32_t process = by_rank ? row.row : row.process, thread = by_rank ? 0 : row.row;
    const std::string name = by_rank ? row.name + " of " + chart.process_name : chart.process_name;
    if (!chart.measured) events.push(name_of("process_name", process, thread, name));
    events.push(name_of("thread_name", process, thread, chart.measured || by_rank ? "actions" : row.name));
    const double unit = chart.measured ? 1 : chart.unit_s > 0 ? chart.unit_s * 1e6 : kUnit;
    for (const ChartAction& action : row.actions)
      events.push({{"name", to_text(action)},
                   {"cat", std::string(1, action.kind)},
                   {"ph", "X"},
                   {"ts", action.begin * unit},
                   {"dur", (action.end - action.begin) * unit},
                   {"pid", process},
                   {"tid", thread},
                   {"args", {{"stage", action.stage}, {"microbatch", action.microbatch}}}});
  }
}

}  // namespace

std::string to_chrome(const Timeline& timeline) {
  Json events = Json::array();
  const std::vector<double> zeros = common_zeros(timeline);
  for (size_t i = 0; i < timeline.tracks.size(); ++i) {
    const Track& track = timeline.tracks[i];
    events.push(name_of("process_name", track.process, track.thread, track.process_name));
    events.push(name_of("thread_name", track.process, track.thread, track.name));
    for (const Span& span : track.spans) events.push(event_of(track, zeros[i], span));
  }
  const bool alone = timeline.tracks.empty() && timeline.schedules.size() == 1;
  for (const Chart& chart : timeline.schedules) add_chart(chart, alone && chart.unit_s > 0, events);
  for (const Chart& chart : recorded_charts(timeline)) add_chart(chart, false, events);
  const Json json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return json.on_lines(1);
}

}  // namespace gsel
