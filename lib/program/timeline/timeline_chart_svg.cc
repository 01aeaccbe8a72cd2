// program/timeline/timeline_chart_svg.cc: draws charts of pipelines one below the other on a common scale. An action is
// a box in the colour of its kind, paler for later chunks, with its micro-batch if that fits. The rest of a row is idle
// time. If there are many actions, each colour is one path, without numbers. The colours differ in grey and for
// colour-blind people. Source of the hues: M. Okabe, K. Ito, "Color Universal Design".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "program/timeline/timeline_svg.h"

namespace gsel {
namespace {

constexpr double kTitle = 50, kRow = 22, kStrip = 5, kRowGap = 4, kAxis = 34, kLegend = 30, kMargin = 14;
constexpr double kLetter = 6.4;  // approximate width of a letter
constexpr double kNarrowest = 620, kWidest = 1800;
constexpr size_t kManyActions = 12'000;
constexpr double kThin = 0.35;  // smallest visible width in pixels

struct Kind {
  char letter;
  const char* meaning;
  int red, green, blue;
};
constexpr std::array kKinds{Kind{'F', "forward", 86, 180, 233}, Kind{'I', "backward, input half", 245, 190, 65},
                            Kind{'W', "backward, weight half", 52, 176, 137}, Kind{'B', "backward", 233, 122, 72},
                            Kind{'S', "end of step", 150, 156, 164}};

struct MarkColour {
  const char* kind;
  const char* fill;
};
constexpr std::array kMarks{MarkColour{"recv", "#b3261e"}, MarkColour{"send", "#7a4fd0"},
                            MarkColour{"wait", "#d6409f"}};

std::string fill_of(const Kind& kind, int32_t chunk, int32_t chunks) {
  const double pale = chunks > 1 ? 0.62 * chunk / (chunks - 1) : 0;
  const auto mixed = [&](int part) { return std::lround(part + (255 - part) * pale); };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(kind.red), mixed(kind.green), mixed(kind.blue));
}

std::string mark_class(const std::string& kind) {
  const auto known = std::ranges::find_if(kMarks, [&](const MarkColour& m) { return kind == m.kind; });
  return known != kMarks.end() ? fmt::format("m{}", known - kMarks.begin()) : "mo";
}

class Charts {
 public:
  explicit Charts(const std::vector<Chart>& charts) : charts_(charts) {
    double shortest = std::numeric_limits<double>::max();
    int32_t microbatches = 0;
    size_t letters = 0, peak_letters = 0;
    for (const Chart& chart : charts) {
      begins_.push_back(begin_of(chart));
      for (const ChartRow& row : chart.rows) {
        letters = std::max(letters, row.name.size());
        peak_letters = std::max(peak_letters, row.peak.size());
        n_actions_ += row.actions.size();
        for (const ChartAction& action : row.actions) {
          length_ = std::max(length_, action.end - begins_.back());
          if (action.end > action.begin && action.kind != 'S') shortest = std::min(shortest, action.end - action.begin);
          microbatches = std::max(microbatches, action.microbatch);
          chunks_ = std::max(chunks_, action.chunk + 1);
          boxes_.insert({action.kind, action.chunk});
        }
        for (const ChartMark& mark : row.marks) {
          length_ = std::max(length_, mark.end - begins_.back());
          marks_.insert(mark_class(mark.kind));
        }
      }
    }
    left_ = kMargin + kLetter * static_cast<double>(letters) + 12;
    right_ = kMargin + (peak_letters > 0 ? 36 : 0);
    // Wide enough for the numbers in the boxes.
    const double box = kLetter * static_cast<double>(std::to_string(microbatches).size()) + 7;
    width_ = charts.front().measured ? kWidest * 0.8 : std::clamp(length_ / shortest * box, kNarrowest, kWidest);
  }

  Panel drawn() {
    double top = 0;
    for (size_t i = 0; i < charts_.size(); ++i) top = draw_chart(i, top + (i > 0 ? 6 : 0));
    draw_legend(top + 12);
    return {left_ + width_ + right_, top + kLegend, style(), body_};
  }

 private:
  static double begin_of(const Chart& chart) {
    if (!chart.measured) return 0;
    double begin = std::numeric_limits<double>::max();
    for (const ChartRow& row : chart.rows) {
      for (const ChartAction& action : row.actions) begin = std::min(begin, action.begin);
      for (const ChartMark& mark : row.marks) begin = std::min(begin, mark.begin);
    }
    return begin;
  }

  // Simulated and measured charts have separate chunks and shades.
  std::string class_of(char kind, int32_t chunk) const {
    return fmt::format("{}{}{}", charts_.front().measured ? "r" : "s", kind, chunk);
  }

  double x(double time) const { return left_ + time / length_ * width_; }

  std::string style() const {
    std::string text =
        ".idle{fill:#eceff2}.num{fill:#0b0d10;pointer-events:none;text-anchor:middle;font-size:10px}"
        ".edge{stroke:#ffffff;stroke-width:0.6}"
        "@media (prefers-color-scheme:dark){.idle{fill:#262c36}.edge{stroke:#0d1117}}.mo{fill:#6e7681}";
    for (const auto& [letter, chunk] : boxes_)
      text += fmt::format(".{}{{fill:{}}}", class_of(letter, chunk),
                          fill_of(*std::ranges::find(kKinds, letter, &Kind::letter), chunk, chunks_));
    for (size_t i = 0; i < kMarks.size(); ++i) text += fmt::format(".m{}{{fill:{}}}", i, kMarks[i].fill);
    return text;
  }

  double draw_chart(size_t index, double top) {
    const Chart& chart = charts_[index];
    body_ += fmt::format(
        "<text class=\"text\" x=\"{0}\" y=\"{1:g}\" font-size=\"15\" font-weight=\"600\">{2}</text>\n"
        "<text class=\"faint\" x=\"{0}\" y=\"{3:g}\">{4}</text>\n",
        kMargin, top + 24, xml(chart.title), top + 41, xml(chart.details));
    const bool strips = std::ranges::any_of(chart.rows, [](const ChartRow& row) { return !row.marks.empty(); });
    const double height = kRow + (strips ? kStrip : 0), first = top + kTitle;
    if (std::ranges::any_of(chart.rows, [](const ChartRow& row) { return !row.peak.empty(); }))
      body_ += fmt::format("<text class=\"faint\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">peak</text>\n",
                           left_ + width_ + right_ - kMargin, first - 5);
    double y = first;
    for (const ChartRow& row : chart.rows) {
      draw_row(chart, row, begins_[index], y, height);
      y += height + kRowGap;
    }
    draw_axis(chart, y - kRowGap);
    return y - kRowGap + kAxis;
  }

  void draw_row(const Chart& chart, const ChartRow& row, double zero, double top, double height) {
    body_ += fmt::format(
        "<rect class=\"idle\" x=\"{0:g}\" y=\"{1:g}\" width=\"{2:.2f}\" height=\"{3:g}\"/>"
        "<text class=\"text\" x=\"{4:g}\" y=\"{5:g}\" text-anchor=\"end\">{6}</text>\n",
        left_, top, width_, height, left_ - 8, top + 15, xml(row.name));
    if (!row.peak.empty())
      body_ += fmt::format("<text class=\"text\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n",
                           left_ + width_ + right_ - kMargin, top + 15, xml(row.peak));
    if (n_actions_ > kManyActions)
      draw_paths(row, zero, top);
    else
      for (const ChartAction& action : row.actions) draw_action(chart, action, zero, top);
    for (const ChartMark& mark : row.marks)
      body_ += fmt::format(
          "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\"><title>{}\nfor "
          "{}</title></rect>\n",
          mark_class(mark.kind), x(mark.begin - zero), top + kRow, std::max(x(mark.end) - x(mark.begin), 0.6),
          kStrip - 1, xml(mark.text), milliseconds(mark.end - mark.begin));
  }

  static std::string time_text(const Chart& chart, double time) {
    if (chart.unit_s > 0) return milliseconds(time * chart.unit_s * 1e6);
    return chart.measured ? milliseconds(time) : amount_text(time);
  }

  void draw_action(const Chart& chart, const ChartAction& action, double zero, double top) {
    const double left = x(action.begin - zero), width = std::max(x(action.end - zero) - left, 0.5);
    body_ += fmt::format(
        "<rect class=\"{}{}\" x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\"><title>{} from {} to "
        "{}</title></rect>",
        class_of(action.kind, action.chunk), width > 3 ? " edge" : "", left, top, width, kRow, to_text(action),
        time_text(chart, action.begin - zero), time_text(chart, action.end - zero));
    const std::string label = action.kind == 'S' ? "step" : std::to_string(action.microbatch);
    if (action.microbatch >= 0 || action.kind == 'S')
      if (width >= kLetter * static_cast<double>(label.size()) + 1)
        body_ +=
            fmt::format("<text class=\"num\" x=\"{:.2f}\" y=\"{:g}\">{}</text>", left + width / 2, top + 15, label);
    body_ += '\n';
  }

  // Merges boxes of a colour that touch, or nearly touch.
  void draw_paths(const ChartRow& row, double zero, double top) {
    struct Path {
      std::string text;
      double begin = 0, end = -1;
    };
    std::map<std::string, Path> paths;
    const auto close = [&](Path& path) {
      if (path.end >= path.begin)
        path.text += fmt::format("M{:.2f} {:g}h{:.2f}v{:g}h{:.2f}z", path.begin, top, path.end - path.begin, kRow,
                                 path.begin - path.end);
    };
    for (const ChartAction& action : row.actions) {
      Path& path = paths[class_of(action.kind, action.chunk)];
      const double begin = x(action.begin - zero), end = x(action.end - zero);
      if (path.end >= path.begin && begin - path.end < kThin) {
        path.end = std::max(path.end, end);
        continue;
      }
      close(path);
      path.begin = begin;
      path.end = end;
    }
    for (auto& [name, path] : paths) {
      close(path);
      body_ += fmt::format("<path class=\"{}\" d=\"{}\"/>\n", name, path.text);
    }
  }

  void draw_axis(const Chart& chart, double top) {
    const double unit = chart.measured     ? 1e3
                        : chart.unit_s > 0 ? 1e-3 / chart.unit_s
                                           : 1,
                 tick = tick_of(length_ / unit, std::max(6.0, width_ / 90)) * unit;
    body_ += fmt::format("<path class=\"grid\" fill=\"none\" d=\"M{:g} {:g}h{:.2f}\"/>\n", left_, top + 4, width_);
    for (int i = 0; i * tick <= length_ * (1 + 1e-9); ++i)
      body_ += fmt::format(
          "<path class=\"grid\" d=\"M{0:.2f} {1:g}v4\"/>"
          "<text class=\"faint\" x=\"{0:.2f}\" y=\"{2:g}\" text-anchor=\"middle\">{3:g}</text>\n",
          x(i * tick), top + 4, top + 20, i * tick / unit);
    body_ += fmt::format("<text class=\"faint\" x=\"{:g}\" y=\"{:g}\" text-anchor=\"end\">{}</text>\n", left_ - 8,
                         top + 20, chart.measured || chart.unit_s > 0 ? "ms" : "time");
  }

  void draw_legend(double y) {
    double at = left_;
    const auto swatch = [&](const std::string& name) {
      body_ += fmt::format("<rect class=\"{}\" x=\"{:g}\" y=\"{:g}\" width=\"12\" height=\"12\"/>\n", name, at, y - 10);
      at += 13;
    };
    const auto add_entry = [&](const std::string& text) {
      body_ += fmt::format("<text class=\"text\" x=\"{:g}\" y=\"{:g}\">{}</text>\n", at + 4, y, text);
      at += kLetter * static_cast<double>(text.size()) + 20;
    };
    for (const Kind& kind : kKinds) {
      const double from = at;
      for (const auto& [letter, chunk] : boxes_)
        if (letter == kind.letter) swatch(class_of(letter, chunk));
      if (at > from) add_entry(kind.meaning);
    }
    swatch("idle");
    add_entry("idle");
    for (size_t i = 0; i < kMarks.size(); ++i)
      if (marks_.contains(fmt::format("m{}", i))) {
        swatch(fmt::format("m{}", i));
        add_entry(kMarks[i].kind);
      }
    if (marks_.contains("mo")) {
      swatch("mo");
      add_entry("other communication");
    }
    if (chunks_ > 1) add_entry(chunks_ == 2 ? "paler: chunk 1" : fmt::format("paler: chunks 1 to {}", chunks_ - 1));
  }

  const std::vector<Chart>& charts_;
  std::vector<double> begins_;
  double length_ = 1e-9, left_ = 0, right_ = 0, width_ = 0;
  size_t n_actions_ = 0;
  int32_t chunks_ = 1;
  std::set<std::pair<char, int32_t>> boxes_;  // kinds and chunks in use
  std::set<std::string> marks_;
  std::string body_;
};

}  // namespace

Panel charts_panel(const std::vector<Chart>& charts) {
  return Charts(charts).drawn();
}

}  // namespace gsel
