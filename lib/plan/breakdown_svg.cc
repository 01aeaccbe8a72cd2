// plan/breakdown_svg.cc: the candidates of a plan as a chart: a bar for each candidate's step, coloured by parts. Does
// not know where the numbers come from.
#include <algorithm>

#include "plan/plan.h"

namespace gsel::plan {
namespace {

constexpr double kWidth = 960, kBar = 640, kRowHeight = 40, kTop = 74;

// Computation in blues, communication in warm colours, waiting in grey.
constexpr const char* kPartColours[kTimeParts] = {"#2563a8", "#4f93d2", "#9cc3e6", "#d95f02", "#9a9a9a",
                                                  "#e6ab02", "#b5362e", "#1b9e77", "#7570b3", "#666666"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string legend(const std::vector<size_t>& parts) {
  std::string out;
  double x = 10;
  for (const size_t part : parts) {
    const std::string name = name_of(static_cast<TimePart>(part));
    out += fmt::format("<rect x='{:.0f}' y='40' width='12' height='12' fill='{}'/><text x='{:.0f}' y='51'>{}</text>\n",
                       x, kPartColours[part], x + 16, name);
    x += 32 + 7.0 * static_cast<double>(name.size());
  }
  return out;
}

std::string bar(const Candidate& c, double y, double scale) {
  std::string out = fmt::format("<text x='10' y='{:.0f}'>{}</text>\n", y - 3, escaped(name_of(c.layout)));
  double x = 10;
  for (size_t i = 0; i < kTimeParts; ++i) {
    const double width = c.time.parts[i] * scale;
    if (width < 0.05) continue;
    out += fmt::format(
        "<rect x='{:.1f}' y='{:.0f}' width='{:.1f}' height='16' fill='{}'><title>{} {:.4g} s</title></rect>\n", x, y,
        width, kPartColours[i], name_of(static_cast<TimePart>(i)), c.time.parts[i]);
    x += width;
  }
  return out + fmt::format("<text x='{:.1f}' y='{:.0f}'>{:.4g} s</text>\n", x + 6, y + 13, c.step_s());
}

}  // namespace

std::string breakdown_svg(const Plan& plan) {
  const auto& all = plan.candidates();
  const size_t n = std::min(all.size(), plan.request().shown);
  double longest = 0;
  std::vector<size_t> parts;
  for (size_t i = 0; i < kTimeParts; ++i)
    if (std::any_of(all.begin(), all.begin() + static_cast<ptrdiff_t>(n),
                    [&](const Candidate& c) { return c.time.parts[i] > 0; }))
      parts.push_back(i);
  for (size_t i = 0; i < n; ++i) longest = std::max(longest, all[i].step_s());
  const Request& r = plan.request();
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
      "font-family='sans-serif' font-size='12' fill='#777'>\n<text x='10' y='22' font-size='15'>A step of {2} on {3}, "
      "batch {4}"
      "</text>\n",
      kWidth, kTop + kRowHeight * static_cast<double>(n) + 10, escaped(r.workload.name), escaped(r.cluster.name),
      r.batch);
  out += legend(parts);
  for (size_t i = 0; i < n; ++i) out += bar(all[i], kTop + kRowHeight * static_cast<double>(i) + 14, kBar / longest);
  return out + "</svg>\n";
}

}  // namespace gsel::plan
