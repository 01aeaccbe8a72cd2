// trace_steps.cc: see trace_steps.h.
#include "trace_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "client.h"
#include "table.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

// Instructions that a rank computes itself, and that can overlap communication.
constexpr std::array<std::string_view, 9> kComputing{
    "input", "forward", "recompute", "backward", "backward_input", "backward_weight", "norm", "step", "release"};

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double number(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number() ? it->get<double>() : kUnknown;
}

std::string time_of(double seconds) {
  return std::isnan(seconds) ? "-" : seconds < 1 ? duration(seconds * 1e6) : formatted("%.3f s", seconds);
}

std::string size_of(double bytes) {
  return std::isnan(bytes) ? "-" : megabytes(bytes);
}

std::string share_text(double part, double whole) {
  return whole > 0 && !std::isnan(part) ? formatted("%.1f%%", part / whole * 100) : "-";
}

// ---- intervals of time ----

struct TimeInterval {
  double begin, end;
};
using TimeIntervals = std::vector<TimeInterval>;

const Json& intervals_of(const Json& step) {
  static const Json none = Json::array();
  const auto it = step.find("intervals");
  return it != step.end() && it->is_array() ? *it : none;
}

bool is_asynchronous(const Json& interval) {
  return interval.value("asynchronous", false);
}

bool is_computing(const Json& interval) {
  return std::ranges::find(kComputing, interval.at("instruction").get_ref<const std::string&>()) != kComputing.end();
}

// In order; adjacent and overlapping intervals are merged.
template <class Takes>
TimeIntervals intervals_of(const Json& step, Takes&& takes) {
  TimeIntervals all, joined;
  for (const Json& interval : intervals_of(step))
    if (takes(interval)) all.push_back({number(interval, "begin_s"), number(interval, "end_s")});
  std::ranges::sort(all, {}, &TimeInterval::begin);
  for (const TimeInterval& interval : all)
    if (!joined.empty() && interval.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, interval.end);
    else
      joined.push_back(interval);
  return joined;
}

double length(const TimeIntervals& intervals) {
  double sum = 0;
  for (const TimeInterval& s : intervals) sum += s.end - s.begin;
  return sum;
}

double common_length(const TimeIntervals& a, const TimeIntervals& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    a[i].end < b[j].end ? ++i : ++j;
  }
  return sum;
}

// ---- text ----

// The part of the time of asynchronous instructions in which the rank computed.
std::string overlap(const Json& step) {
  const TimeIntervals asynchronous = intervals_of(step, is_asynchronous);
  const TimeIntervals computing =
      intervals_of(step, [](const Json& interval) { return !is_asynchronous(interval) && is_computing(interval); });
  return share_text(common_length(asynchronous, computing), length(asynchronous));
}

Row summary(const Json& step) {
  const Json& rank = step.at("rank");
  return {rank.dump(),
          step.contains("step") ? step["step"].dump() : "-",
          time_of(number(step, "seconds")),
          time_of(number(step, "compute_s")),
          time_of(number(step, "optimizer_s")),
          time_of(number(step, "exposed_comm_s")),
          overlap(step),
          size_of(number(step, "bytes_sent")),
          size_of(number(step, "peak_bytes")),
          step.value("skipped", false) ? "skipped: a gradient was not finite" : ""};
}

// Totals of one kind of instruction, on the calling thread or asynchronously.
struct Kind {
  std::string name;
  bool asynchronous;
  int64_t times = 0;
  double seconds = 0;
};

std::vector<Kind> kinds_in(const Json& step) {
  std::vector<Kind> kinds;
  for (const Json& interval : intervals_of(step)) {
    const auto& name = interval.at("instruction").get_ref<const std::string&>();
    auto kind = std::ranges::find_if(kinds, [&](const Kind& known) {
      return known.name == name && known.asynchronous == is_asynchronous(interval);
    });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {name, is_asynchronous(interval)});
    ++kind->times;
    kind->seconds += number(interval, "end_s") - number(interval, "begin_s");
  }
  return kinds;
}

std::string kinds_text(const Json& step) {
  const double seconds = number(step, "seconds");
  std::vector<Kind> kinds = kinds_in(step);
  std::vector<Row> rows{{"  instruction", "where", "times", "time", "of the step", "sent"}};
  // If a kind ran in both ways, its bytes count as asynchronous.
  const auto sends = [&](const std::string& name, bool asynchronous) {
    return std::ranges::none_of(kinds,
                                [&](const Kind& k) { return k.name == name && k.asynchronous && !asynchronous; });
  };
  const auto sent_by = [&](const std::string& name) {
    double bytes = 0;
    for (const Json& count : step.value("counts", Json::array()))
      if (count.at("instruction") == name) bytes += number(count, "bytes_sent");
    return bytes;
  };
  for (const Kind& kind : kinds) {
    const double bytes = sends(kind.name, kind.asynchronous) ? sent_by(kind.name) : 0;
    rows.push_back({"  " + kind.name, kind.asynchronous ? "asynchronous" : "calling thread", std::to_string(kind.times),
                    time_of(kind.seconds), share_text(kind.seconds, seconds), bytes > 0 ? megabytes(bytes) : "-"});
  }
  for (const Json& count : step.value("counts", Json::array())) {
    const auto& name = count.at("instruction").get_ref<const std::string&>();
    if (number(count, "calls") > 0 && std::ranges::find(kinds, name, &Kind::name) == kinds.end())
      rows.push_back({"  " + name + " (" + count.at("axis").get<std::string>() + ")", "-", count.at("calls").dump(),
                      "-", "-", size_of(number(count, "bytes_sent"))});
  }
  if (!kinds.empty()) {
    const TimeIntervals calling = intervals_of(step, [](const Json& interval) { return !is_asynchronous(interval); });
    const double between = std::max(0.0, seconds - length(calling));
    rows.push_back({"  between them", "calling thread", "-", time_of(between), share_text(between, seconds), "-"});
  }
  return rows.size() == 1 ? std::string() : "rank " + step.at("rank").dump() + "\n" + table(rows);
}

std::string title(const std::vector<Json>& steps) {
  double first = number(steps.front(), "step"), last = first, seconds = 0;
  for (const Json& step : steps) {
    first = std::fmin(first, number(step, "step"));
    last = std::fmax(last, number(step, "step"));
    seconds = std::fmax(seconds, number(step, "seconds"));
  }
  const double rate = number(steps.front(), "weight") / seconds;
  std::string text =
      first == last ? formatted("step %.0f", first) : formatted("steps %.0f", first) + formatted(" to %.0f", last);
  text += ", " + with_noun(steps.size(), "rank") + ", " + time_of(seconds);
  if (seconds > 0 && first == last && !std::isnan(rate)) text += formatted(", %.0f tokens/s", rate);
  return text + "\n";
}

}  // namespace

std::vector<Json> merge_steps(const std::vector<Json>& documents) {
  std::vector<Json> steps;
  for (const Json& document : documents)
    for (const Json& step : document.at("steps"))
      if (std::ranges::find(steps, step) == steps.end()) steps.push_back(step);
  std::ranges::stable_sort(steps, {}, [](const Json& step) { return number(step, "rank"); });
  return steps;
}

std::string steps_text(const std::vector<Json>& steps) {
  if (steps.empty()) return {};
  std::vector<Row> rows{
      {"rank", "step", "time", "computing", "optimizer", "exposed", "overlap", "sent", "peak memory", ""}};
  for (const Json& step : steps) rows.push_back(summary(step));
  std::string out = title(steps) + table(rows);
  for (const Json& step : steps) out += kinds_text(step);
  return out;
}

}  // namespace gsel::cli
