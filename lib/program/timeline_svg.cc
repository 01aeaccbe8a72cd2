// program/timeline_svg.cc: a timeline as a picture. A lane is a band of rows; spans of a lane that overlap stand in
// rows of their own. Colours are chosen to be told apart on a white and on a black page.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "program/timeline.h"

namespace gsel {
namespace {

constexpr double kLeft = 190, kWidth = 1000, kTop = 64, kRow = 18, kGap = 4, kLaneGap = 6, kRightMargin = 20;
constexpr double kLetter = 6.2;  // width of one, about
constexpr double kLegendItem = 130;
constexpr size_t kMaxRows = 64;  // of a lane; what would need more shares the last one

struct Colour {
  const char* kind;
  const char* fill;
};
// Computing in blue, orange and green, waiting in red, what runs beside in violet and teal.
constexpr std::array kColours{
    Colour{"input", "#8b949e"},          Colour{"forward", "#4c8df6"},        Colour{"recompute", "#7db1ff"},
    Colour{"backward", "#f0883e"},       Colour{"backward_input", "#f5a860"}, Colour{"backward_weight", "#d2691e"},
    Colour{"step", "#2ea043"},           Colour{"norm", "#7ee787"},           Colour{"wait", "#e5484d"},
    Colour{"loss_reduce", "#ff8f8f"},    Colour{"overflow", "#ffb3b3"},       Colour{"reduce", "#a371f7"},
    Colour{"reduce_scatter", "#8957e5"}, Colour{"reduce_root", "#c297ff"},    Colour{"gather", "#1fb8a6"},
    Colour{"broadcast", "#39c5cf"},      Colour{"release", "#6e7681"},        Colour{"scatter", "#db61a2"},
    Colour{"collect", "#bf4b8a"},        Colour{"send", "#d4a72c"},           Colour{"recv", "#eac54f"},
};
// For kinds without a colour, in alphabetical order.
constexpr std::array kOthers{"#4c8df6", "#f0883e", "#2ea043", "#a371f7", "#1fb8a6", "#db61a2", "#d4a72c", "#e5484d"};

// Bytes of the UTF-8 character at the front; 0 when there is none that XML takes.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t n = first >= 0xc2 && first < 0xe0   ? 2
                   : first >= 0xe0 && first < 0xf0 ? 3
                   : first >= 0xf0 && first < 0xf5 ? 4
                                                   : 0;
  unsigned code = n == 2 ? first & 0x1f : n == 3 ? first & 0x0f : first & 0x07;
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const bool too_long = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  const bool no_character = (code >= 0xd800 && code < 0xe000) || (code & 0xfffe) == 0xfffe || code > 0x10ffff;
  return too_long || no_character ? 0 : n;
}

std::string xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(n, 1));
    text.remove_prefix(character.size());
    if (n == 0)
      out += '?';
    else if (character == "&")
      out += "&amp;";
    else if (character == "<")
      out += "&lt;";
    else if (character == ">")
      out += "&gt;";
    else if (character == "\"")
      out += "&quot;";
    else
      out += character;
  }
  return out;
}

std::string milliseconds(double us) {
  return fmt::format("{:.3f} ms", us * 1e-3);
}

// 1, 2 or 5 times a power of ten, such that about ten of them fill the width.
double tick_of(double length_us) {
  const double rough = std::max(length_us, 1e-3) / 10, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

class Picture {
 public:
  explicit Picture(const Timeline& timeline) : timeline_(timeline), zeros_(common_zeros(timeline)) {
    bool any = false;
    double end = 0;
    for (size_t i = 0; i < timeline.lanes.size(); ++i)
      for (const Span& span : timeline.lanes[i].spans) {
        begin_ = any ? std::min(begin_, zeros_[i] + span.begin_us) : zeros_[i] + span.begin_us;
        end = any ? std::max(end, zeros_[i] + span.end_us) : zeros_[i] + span.end_us;
        any = true;
        kinds_.insert(span.kind);
      }
    length_ = std::max(end - begin_, 1e-3);
  }

  std::string drawn() {
    choose_colours();
    for (size_t i = 0; i < timeline_.lanes.size(); ++i) draw_lane(i);
    const double lanes_end = y_, legend_end = draw_legend(lanes_end + 40);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"11\">\n{2}{3}{4}{5}</svg>\n",
        kLeft + kWidth + kRightMargin, legend_end, style(), heading(), axis(lanes_end), body_);
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
    std::string text =
        "<style>.page{fill:#ffffff}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0;stroke-width:1}"
        ".lane{fill:#f6f8fa}.on{fill:#0b0d10;pointer-events:none}"
        "@media (prefers-color-scheme:dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}"
        ".grid{stroke:#3d444d}.lane{fill:#151b23}}";
    for (const auto& [kind, colour] : colours_) text += fmt::format(".k{}{{fill:{}}}", colour.first, colour.second);
    return text + "</style>\n";
  }

  std::string heading() const {
    std::set<int32_t> processes;
    for (const Lane& lane : timeline_.lanes) processes.insert(lane.process);
    return fmt::format(
        "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n"
        "<text class=\"text\" x=\"12\" y=\"24\" font-size=\"14\">{} rank{}, {}</text>\n",
        processes.size(), processes.size() == 1 ? "" : "s", milliseconds(length_));
  }

  std::string axis(double bottom) const {
    std::string text;
    const double tick = tick_of(length_);
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

  // The first row that is free again when a span begins.
  static std::vector<size_t> rows_of(const Lane& lane, std::vector<size_t>& order) {
    std::vector<size_t> rows(lane.spans.size());
    std::ranges::stable_sort(order, {}, [&](size_t i) { return lane.spans[i].begin_us; });
    std::vector<double> free_from;
    for (const size_t i : order) {
      const auto row = std::ranges::find_if(free_from, [&](double from) { return from <= lane.spans[i].begin_us; });
      rows[i] = std::min(static_cast<size_t>(row - free_from.begin()), kMaxRows - 1);
      if (rows[i] == free_from.size()) free_from.push_back(0);
      free_from[rows[i]] = lane.spans[i].end_us;
    }
    return rows;
  }

  void draw_lane(size_t index) {
    const Lane& lane = timeline_.lanes[index];
    std::vector<size_t> order(lane.spans.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const std::vector<size_t> rows = rows_of(lane, order);
    const size_t n_rows = rows.empty() ? 1 : *std::ranges::max_element(rows) + 1;
    const bool first = index == 0 || timeline_.lanes[index - 1].process != lane.process;
    if (first && index > 0) y_ += kLaneGap;
    const double height = static_cast<double>(n_rows) * (kRow + kGap) + kGap;
    body_ += fmt::format("<rect class=\"lane\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0.6\"/>\n",
                         kLeft, y_, kWidth, height);
    const double middle = y_ + kGap + kRow * 0.7;
    if (first)
      body_ += fmt::format("<text class=\"text\" x=\"12\" y=\"{:.2f}\">{}</text>\n", middle, xml(lane.process_name));
    if (!first || lane.of_step)
      body_ += fmt::format("<text class=\"faint\" x=\"{}\" y=\"{:.2f}\" text-anchor=\"end\">{}</text>\n", kLeft - 8,
                           middle, xml(lane.name));
    for (const size_t i : order)
      draw_span(lane.spans[i], zeros_[index], y_ + kGap + static_cast<double>(rows[i]) * (kRow + kGap));
    y_ += height + 1;
  }

  void draw_span(const Span& span, double zero, double top) {
    const double left = x(zero + span.begin_us), width = std::max(x(zero + span.end_us) - left, 0.5);
    body_ += fmt::format(
        "<rect class=\"k{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" rx=\"2\"{}>"
        "<title>{}{}\nfrom {} for {}</title></rect>\n",
        colours_[span.kind].first, left, top, width, kRow,
        span.note == "failed" ? " stroke=\"#e5484d\" stroke-width=\"2\"" : "",
        xml(span.text.empty() ? span.name : span.text), span.note.empty() ? "" : " (" + xml(span.note) + ")",
        milliseconds(zero + span.begin_us - begin_), milliseconds(span.end_us - span.begin_us));
    if (width > kLetter * static_cast<double>(span.name.size()) + 8)
      body_ += fmt::format("<text class=\"on\" x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", left + 4, top + kRow * 0.7,
                           xml(span.name));
  }

  double draw_legend(double top) {
    double at = kLeft;
    for (const auto& [kind, colour] : colours_) {
      const double width = std::max(kLegendItem, kLetter * static_cast<double>(kind.size()) + 30);
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

std::string to_svg(const Timeline& timeline) {
  return Picture(timeline).drawn();
}

}  // namespace gsel
