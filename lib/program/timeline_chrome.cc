// program/timeline_chrome.cc: a timeline as Chrome's trace events, which Perfetto reads too: a process of Chrome's for
// each rank, a thread for each lane. Source: "Trace Event Format", the document of Chromium's tracing team.
#include <nlohmann/json.hpp>

#include "program/timeline.h"

namespace gsel {
namespace {

using Json = nlohmann::ordered_json;

Json name_of(const char* what, const Lane& lane, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", lane.process}, {"tid", lane.thread}, {"args", {{"name", name}}}};
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

}  // namespace

std::string to_chrome(const Timeline& timeline) {
  Json events = Json::array();
  const std::vector<double> zeros = common_zeros(timeline);
  for (size_t i = 0; i < timeline.lanes.size(); ++i) {
    const Lane& lane = timeline.lanes[i];
    events.push_back(name_of("process_name", lane, lane.process_name));
    events.push_back(name_of("thread_name", lane, lane.name));
    for (const Span& span : lane.spans) events.push_back(event_of(lane, zeros[i], span));
  }
  const Json json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gsel
