// program/timeline/timeline.cc: reads documents into tracks; see timeline.h.
#include "program/timeline/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/json_object.h"
#include "base/text.h"
#include "base/types.h"
#include "program/timeline/timeline_chart.h"

namespace gsel {
namespace {

constexpr size_t kMaxBytes = 64 << 20;
constexpr size_t kMaxSpans = 1'000'000;
constexpr int32_t kMaxRank = 999'999;
constexpr int32_t kMaxCommunicators = 2000;
constexpr size_t kMaxSchedules = 100;
constexpr int32_t kProcessesEach = 1'000'000;  // ids of a communicator's ranks begin after those of a step's ranks
constexpr double kMaxSeconds = 1e9;
constexpr uint64_t kMaxNs = uint64_t{1} << 62;
constexpr double kMost = std::numeric_limits<double>::max();
// Numbers of a step; null if not finite.
constexpr const char* kNumbers[] = {"world_size",        "step",        "loss",
                                    "loss_sum",          "weight",      "gradient_norm",
                                    "learning_rate",     "loss_scale",  "seconds",
                                    "tokens_per_second", "compute_s",   "exposed_comm_s",
                                    "optimizer_s",       "allgather_s", "exposed_allgather_s",
                                    "bytes_sent",        "n_reduces",   "n_overlapped",
                                    "n_allgathers",      "peak_bytes",  "offload_bytes_in",
                                    "offload_bytes_out"};
constexpr int32_t kCallingThread = 0, kCommunication = 1;

// Adds all of a document, or nothing.
class Reader {
 public:
  Reader(const Timeline& timeline, const std::string& file) : source_{"timeline", one_line(file)} {
    for (const Track& track : timeline.tracks) {
      n_spans_ += track.spans.size();
      communicators_ = std::max(communicators_, track.process / kProcessesEach);
    }
    n_schedules_ = timeline.schedules.size();
    for (const Chart& chart : timeline.schedules)
      for (const ChartRow& row : chart.rows) n_spans_ += row.actions.size();
  }

  Timeline read(std::string_view text) {
    if (text.size() > kMaxBytes)
      throw Error(GSEL_ERR_PARSE,
                  fmt::format("timeline {}: has {} bytes; at most {} are read: use fewer ranks or micro-batches",
                              source_.file, text.size(), kMaxBytes))
          .at({source_.file, 0, 0, {}});
    const auto tree = parse_json(text, source_);
    JsonObject root(*tree, source_);
    if (root.has("gsel-simulation")) {
      read_simulation(root);
      return std::move(read_);
    }
    const bool is_recording = root.has("communicators");
    if (!is_recording && !root.has("steps"))
      root.refuse({},
                  "has neither steps nor communicators nor gsel-simulation; expected a file that train.timeline, "
                  "GSEL_TRACE or gsel program --schedule --json made");
    if (root.has("steps")) root.array("steps").each([this](JsonObject step) { read_step(step); });
    if (is_recording) root.array("communicators").each([this](JsonObject object) { read_communicator(object); });
    return std::move(read_);
  }

 private:
  void count_span(const JsonObject& object) {
    if (++n_spans_ > kMaxSpans) object.refuse({}, fmt::format("is one too many: {} can be drawn together", kMaxSpans));
  }

  void read_simulation(JsonObject& root) {
    if (n_schedules_ == kMaxSchedules)
      root.refuse({}, fmt::format("is one schedule too many: {} can be drawn together", kMaxSchedules));
    Chart chart = simulated_chart(root, kMaxSpans - n_spans_);
    const auto process = static_cast<int32_t>(kMaxCommunicators + 1 + n_schedules_) * kProcessesEach;
    for (ChartRow& row : chart.rows) row.process = process;
    read_.schedules.push_back(std::move(chart));
  }

  // Fields that are not drawn are checked as well, for commands that print them.
  static void check_report(JsonObject& step) {
    for (const char* name : kNumbers)
      if (!step.is_null(name)) step.real(name, -kMost, kMost, 0);
    step.flag("skipped", false);
    step.array("counts").each([](JsonObject count) {
      count.require_text("axis");
      count.require_text("instruction");
      count.number("calls", 0, kMaxNs, 0);
      count.number("bytes_sent", 0, kMaxNs, 0);
    });
    step.array("memory").each([](JsonObject part) {
      part.require_text("part");
      part.whole("offloaded", 1, 0);
      part.number("forecast_bytes", 0, kMaxNs, 0);
      part.number("peak_bytes", 0, kMaxNs, 0);
    });
  }

  void read_step(JsonObject& step) {
    check_report(step);
    const auto rank = static_cast<int32_t>(step.number("rank", 0, kMaxRank, 0));
    if (!step.has("rank")) step.refuse("rank", "is missing");
    const double zero =
        step.is_null("began_ns") ? 0 : static_cast<double>(step.number("began_ns", 0, kMaxNs, 0)) * 1e-3;
    const std::string name = fmt::format("rank {}", rank);
    const Coordinates coordinates = coordinates_of(step, rank);
    Track calling{rank, name, kCallingThread, "calling thread", zero, true, {}, coordinates};
    Track communication{rank, name, kCommunication, "communication", zero, true, {}, coordinates};
    if (!step.is_null("intervals"))
      step.array("intervals").each([&](JsonObject interval) {
        count_span(interval);
        Span span = read_interval(interval);
        (interval.flag("asynchronous", false) ? communication : calling).spans.push_back(std::move(span));
      });
    read_.tracks.push_back(std::move(calling));
    if (!communication.spans.empty()) read_.tracks.push_back(std::move(communication));
  }

  // The pipeline axis is the outermost.
  static Coordinates coordinates_of(JsonObject& step, int32_t rank) {
    if (!step.has("mesh")) return {};
    JsonObject mesh = step.object("mesh");
    int64_t n_replicas = 1, n_stages = 1;
    for (gsel_axis axis = 0; axis < kAxes; ++axis) {
      const auto size = static_cast<int64_t>(mesh.number(axis_name(axis), 1, kMaxRank + 1, 1));
      (axis == GSEL_AXIS_PIPELINE ? n_stages : n_replicas) *= size;
      if (n_replicas > kMaxRank) break;
    }
    if (n_replicas > kMaxRank || rank / n_replicas >= n_stages)
      step.refuse("mesh", fmt::format("has no rank {}", rank));
    return {static_cast<int32_t>(n_stages), static_cast<int32_t>(n_replicas), static_cast<int32_t>(rank / n_replicas),
            static_cast<int32_t>(rank % n_replicas)};
  }

  static Span read_interval(JsonObject& interval) {
    Span span;
    span.kind = span.name = interval.require_text("instruction");
    span.text = interval.any_text("text");
    for (const char* name : {"begin_s", "end_s"})
      if (!interval.has(name)) interval.refuse(name, "is missing");
    const double begin = interval.real("begin_s", 0, kMaxSeconds, 0);
    span.begin_us = begin * 1e6;
    span.end_us = interval.real("end_s", begin, kMaxSeconds, 0) * 1e6;
    if (interval.has("stage") && !interval.is_null("stage")) span.stage = interval.whole("stage", kMaxRank, 0);
    return span;
  }

  // One process per rank. Spans still under way end at the time of the recording.
  void read_communicator(JsonObject& communicator) {
    for (const char* name : {"made_ns", "taken_us"})
      if (!communicator.has(name)) communicator.refuse(name, "is missing");
    const double zero = static_cast<double>(communicator.number("made_ns", 0, kMaxNs, 0)) * 1e-3;
    const double taken = communicator.real("taken_us", -kMaxSeconds * 1e6, kMaxSeconds * 1e6, 0);
    if (communicators_ == kMaxCommunicators)
      communicator.refuse({}, fmt::format("is one too many: {} can be drawn together", kMaxCommunicators));
    const int32_t c = communicators_++;
    if (!communicator.has("ranks")) communicator.refuse("ranks", "is missing");
    communicator.array("ranks").each([&](JsonObject rank) {
      const auto r = static_cast<int32_t>(rank.number("rank", 0, kMaxRank, 0));
      const auto pid = rank.number("pid", 0, std::numeric_limits<int32_t>::max(), 0);
      Track track;
      track.process = (c + 1) * kProcessesEach + r;
      track.process_name = fmt::format("communicator {}, rank {} (pid {})", c, r, pid);
      track.name = "calls";
      track.zero_us = zero;
      rank.array("calls").each([&](JsonObject call) {
        count_span(call);
        track.spans.push_back(read_call(call, taken));
      });
      read_.tracks.push_back(std::move(track));
    });
  }

  static Span read_call(JsonObject& call, double taken) {
    Span span;
    const uint64_t number = call.number("number", 0, kMaxNs, 0);
    span.kind = call.require_text("kind");
    const std::string label = call.any_text("label");
    span.name = label.empty() ? span.kind : label;
    span.text = fmt::format("call {}: {}", number, call.any_text("text"));
    if (!call.has("entered_us")) call.refuse("entered_us", "is missing");
    const double entered = call.real("entered_us", -kMaxSeconds * 1e6, kMaxSeconds * 1e6, 0);
    const bool open = !call.has("left_us") || call.is_null("left_us");
    const double left = open ? std::max(taken, entered) : call.real("left_us", entered, kMaxSeconds * 1e6, 0);
    span.begin_us = entered;
    span.end_us = left;
    span.note = open ? "still in it" : call.flag("failed", false) ? "failed" : "";
    return span;
  }

  JsonSource source_;
  size_t n_spans_ = 0, n_schedules_ = 0;
  int32_t communicators_ = 0;
  Timeline read_;
};

}  // namespace

void add_document(Timeline& timeline, std::string_view json, const std::string& file) {
  Timeline read = Reader(timeline, file).read(json);
  timeline.tracks.reserve(timeline.tracks.size() + read.tracks.size());
  timeline.schedules.reserve(timeline.schedules.size() + read.schedules.size());
  std::ranges::move(read.tracks, std::back_inserter(timeline.tracks));
  std::ranges::move(read.schedules, std::back_inserter(timeline.schedules));
}

std::vector<double> common_zeros(const Timeline& timeline) {
  double latest_begin = -std::numeric_limits<double>::infinity(), earliest_end = -latest_begin;
  std::vector<double> zeros;
  for (const Track& track : timeline.tracks) {
    zeros.push_back(track.zero_us);
    if (!track.of_step || track.thread != kCallingThread || track.spans.empty()) continue;
    latest_begin = std::max(latest_begin, track.zero_us);
    earliest_end = std::min(earliest_end, track.zero_us + std::ranges::max(track.spans, {}, &Span::end_us).end_us);
  }
  if (latest_begin <= earliest_end) return zeros;
  for (size_t i = 0; i < zeros.size(); ++i)
    if (timeline.tracks[i].of_step) zeros[i] = 0;
  return zeros;
}

}  // namespace gsel
