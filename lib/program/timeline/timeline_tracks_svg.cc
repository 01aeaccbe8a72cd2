// program/timeline/timeline_tracks_svg.cc: draws tracks. A track is a band of rows; overlapping spans of a track are in
// separate rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/text.h"
#include "program/timeline/timeline_svg.h"

namespace gsel {
namespace {

constexpr double kLeft = 190, kWidth = 1000, kTop = 64, kTrackRow = 18, kGap = 4, kTrackGap = 6, kRightMargin = 20;
constexpr double kTrackLetter = 6.2;  // approximate width of a letter
constexpr double kLegendItem = 130;
constexpr size_t kMaxRows = 64;  // per track; further spans share the last row

struct Colour {
  const char* kind;
  const char* fill;
};
// Computing in blue, orange and green, waiting in red, asynchronous work in violet and teal.
constexpr std::array kColours{
    Colour{"input", "#8b949e"},          Colour{"forward", "#4c8df6"},        Colour{"recompute", "#7db1ff"},
    Colour{"backward", "#f0883e"},       Colour{"backward_input", "#f5a860"}, Colour{"backward_weight", "#d2691e"},
    Colour{"step", "#2ea043"},           Colour{"norm", "#7ee787"},           Colour{"wait", "#e5484d"},
    Colour{"loss_allreduce", "#ff8f8f"}, Colour{"overflow", "#ffb3b3"},       Colour{"allreduce", "#a371f7"},
    Colour{"reduce_scatter", "#8957e5"}, Colour{"reduce", "#c297ff"},         Colour{"allgather", "#1fb8a6"},
    Colour{"broadcast", "#39c5cf"},      Colour{"release", "#6e7681"},        Colour{"scatter", "#db61a2"},
    Colour{"gather", "#bf4b8a"},         Colour{"send", "#d4a72c"},           Colour{"recv", "#eac54f"},
    Colour{"post_validate", "#ffd6d6"},
};
// For kinds without a colour, in alphabetical order.
constexpr std::array kOthers{"#4c8df6", "#f0883e", "#2ea043", "#a371f7", "#1fb8a6", "#db61a2", "#d4a72c", "#e5484d"};

class Picture {
 public:
  explicit Picture(const Timeline& timeline) : timeline_(timeline), zeros_(common_zeros(timeline)) {
    bool any = false;
    double end = 0;
    for (size_t i = 0; i < timeline.tracks.size(); ++i)
      for (const Span& span : timeline.tracks[i].spans) {
        begin_ = any ? std::min(begin_, zeros_[i] + span.begin_us) : zeros_[i] + span.begin_us;
        end = any ? std::max(end, zeros_[i] + span.end_us) : zeros_[i] + span.end_us;
        any = true;
        kinds_.insert(span.kind);
      }
    length_ = std::max(end - begin_, 1e-3);
  }

  Panel drawn() {
    choose_colours();
    for (size_t i = 0; i < timeline_.tracks.size(); ++i) draw_track(i);
    const double tracks_end = y_, legend_end = draw_legend(tracks_end + 40);
    return {kLeft + kWidth + kRightMargin, legend_end, style(), heading() + axis(tracks_end) + body_};
  }

 private:
  double x(double us) const { return kLeft + (us - begin_) / length_ * kWidth; }

  void choose_colours() {
    size_t other = 0;
    for (const std::string& kind : kinds_) {
      const auto* known = std::ranges::find(kColours, std::string_view(kind), &Colour::kind);
      colours_[kind] = {colours_.size(), known != kColours.end() ? known->fill : kOthers[other++ % kOthers.size()]};
    }
  }

  std::string style() const {
    std::string text;
    for (const auto& [kind, colour] : colours_) text += fmt::format(".k{}{{fill:{}}}", colour.first, colour.second);
    return text;
  }

  std::string heading() const {
    std::set<int32_t> processes;
    for (const Track& track : timeline_.tracks) processes.insert(track.process);
    return fmt::format("<text class=\"text\" x=\"12\" y=\"24\" font-size=\"14\">{}, {}</text>\n",
                       with_noun(processes.size(), "rank"), milliseconds(length_));
  }

  std::string axis(double bottom) const {
    std::string text;
    const double tick = tick_of(length_, 10);
    for (int i = 0; i * tick <= length_; ++i) {
      const double at = kLeft + i * tick / length_ * kWidth;
      text += fmt::format(
          "<line class=\"grid\" x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\"/>"
          "<text class=\"faint\" x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
          at, kTop - 8, bottom, kTop - 12, i * tick * 1e-3);
    }
    return text + fmt::format("<text class=\"faint\" x=\"{}\" y=\"{}\" text-anchor=\"end\">ms</text>\n", kLeft - 12,
                              kTop - 12);
  }

  // Each span goes to the first row that is free when it begins.
  static std::vector<size_t> rows_of(const Track& track, std::vector<size_t>& order) {
    std::vector<size_t> rows(track.spans.size());
    std::ranges::stable_sort(order, {}, [&](size_t i) { return track.spans[i].begin_us; });
    std::vector<double> free_from;
    for (const size_t i : order) {
      const auto row = std::ranges::find_if(free_from, [&](double from) { return from <= track.spans[i].begin_us; });
      rows[i] = std::min(static_cast<size_t>(row - free_from.begin()), kMaxRows - 1);
      if (rows[i] == free_from.size()) free_from.push_back(0);
      free_from[rows[i]] = track.spans[i].end_us;
    }
    return rows;
  }

  void draw_track(size_t index) {
    const Track& track = timeline_.tracks[index];
    std::vector<size_t> order(track.spans.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const std::vector<size_t> rows = rows_of(track, order);
    const size_t n_rows = rows.empty() ? 1 : *std::ranges::max_element(rows) + 1;
    const bool first = index == 0 || timeline_.tracks[index - 1].process != track.process;
    if (first && index > 0) y_ += kTrackGap;
    const double height = static_cast<double>(n_rows) * (kTrackRow + kGap) + kGap;
    body_ += fmt::format("<rect class=\"track\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0.6\"/>\n",
                         kLeft, y_, kWidth, height);
    const double middle = y_ + kGap + kTrackRow * 0.7;
    if (first)
      body_ += fmt::format("<text class=\"text\" x=\"12\" y=\"{:.2f}\">{}</text>\n", middle, xml(track.process_name));
    if (!first || track.of_step)
      body_ += fmt::format("<text class=\"faint\" x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                           middle, xml(track.name));
    for (const size_t i : order)
      draw_span(track.spans[i], zeros_[index], y_ + kGap + static_cast<double>(rows[i]) * (kTrackRow + kGap));
    y_ += height + 1;
  }

  void draw_span(const Span& span, double zero, double top) {
    const double left = x(zero + span.begin_us), width = std::max(x(zero + span.end_us) - left, 0.5);
    body_ += fmt::format(
        "<rect class=\"k{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" rx=\"2\"{}>"
        "<title>{}{}\nfrom {} for {}</title></rect>\n",
        colours_[span.kind].first, left, top, width, kTrackRow,
        span.note == "failed" ? " stroke=\"#e5484d\" stroke-width=\"2\"" : "",
        xml(span.text.empty() ? span.name : span.text), span.note.empty() ? "" : " (" + xml(span.note) + ")",
        milliseconds(zero + span.begin_us - begin_), milliseconds(span.end_us - span.begin_us));
    if (width > kTrackLetter * static_cast<double>(span.name.size()) + 8)
      body_ += fmt::format("<text class=\"on\" x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", left + 4, top + kTrackRow * 0.7,
                           xml(span.name));
  }

  double draw_legend(double top) {
    double at = kLeft;
    for (const auto& [kind, colour] : colours_) {
      const double width = std::max(kLegendItem, kTrackLetter * static_cast<double>(kind.size()) + 30);
      if (at > kLeft && at + width > kLeft + kWidth) {
        at = kLeft;
        top += 18;
      }
      body_ += fmt::format(
          "<rect class=\"k{}\" x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"2\"/>"
          "<text class=\"text\" x=\"{}\" y=\"{}\">{}</text>\n",
          colour.first, at, top - 10, at + 17, top, xml(kind));
      at += width;
    }
    return top + 20;
  }

  const Timeline& timeline_;
  std::vector<double> zeros_;
  double begin_ = 0, length_ = 0;
  std::set<std::string> kinds_;
  std::map<std::string, std::pair<size_t, const char*>> colours_;  // class number, fill
  double y_ = kTop;
  std::string body_;
};

}  // namespace

Panel tracks_panel(const Timeline& timeline) {
  return Picture(timeline).drawn();
}

}  // namespace gsel
