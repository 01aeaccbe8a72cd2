// program/timeline/timeline_svg.cc: the page of a picture, and its text and numbers; see timeline_svg.h.
#include "program/timeline/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gsel {
namespace {

constexpr double kBetween = 24;
constexpr const char* kPageStyle =
    ".page{fill:#ffffff}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0;stroke-width:1}"
    ".track{fill:#f6f8fa}.on{fill:#0b0d10;pointer-events:none}"
    "@media (prefers-color-scheme:dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}"
    ".grid{stroke:#3d444d}.track{fill:#151b23}}";

// Bytes of the first UTF-8 character; 0 if it is not valid in XML.
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

}  // namespace

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

double tick_of(double length, double parts) {
  const double rough = std::max(length, 1e-9) / parts, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::string to_svg(const Timeline& timeline) {
  std::vector<Panel> panels;
  if (!timeline.schedules.empty()) panels.push_back(charts_panel(timeline.schedules));
  if (const std::vector<Chart> recorded = recorded_charts(timeline); !recorded.empty())
    panels.push_back(charts_panel(recorded));
  Timeline others;
  std::ranges::copy_if(timeline.tracks, std::back_inserter(others.tracks),
                       [](const Track& track) { return !track.of_pipeline(); });
  if (!others.tracks.empty() || panels.empty()) panels.push_back(tracks_panel(others));

  double width = 0, height = 0;
  std::string style = kPageStyle, body;
  for (const Panel& panel : panels) {
    if (height > 0) height += kBetween;
    body += height > 0 ? fmt::format("<g transform=\"translate(0,{:g})\">\n{}</g>\n", height, panel.body) : panel.body;
    width = std::max(width, panel.width);
    height += panel.height;
    style += panel.style;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"11\">\n<style>{2}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{3}</svg>\n",
      width, height, style, body);
}

}  // namespace gsel
