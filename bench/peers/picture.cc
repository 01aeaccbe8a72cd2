// picture.cc: the picture of a run, an SVG of small panels: time over size, both axes logarithmic.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cells.h"

namespace bench {
namespace {

constexpr int kColumns = 3, kWidth = 380, kHeight = 300, kTop = 96;
constexpr int kLeft = 58, kRight = 12, kHead = 30, kFoot = 44;  // margins inside a panel
const char* const kColors[] = {"#9a9a9a", "#d62728", "#1f77b4", "#17becf", "#0b3d66",
                               "#2ca02c", "#145214", "#9467bd", "#ff7f0e"};

struct Panel {
  int ranks;
  std::string operation;
  std::vector<Row> rows;
};

std::vector<Panel> panels_of(const Results& results) {
  std::vector<Panel> panels;
  for (const Row& row : results.rows) {
    if (row.bytes == 0 || row.operation == "memcpy") continue;
    const auto same = [&](const Panel& p) { return p.ranks == row.ranks && p.operation == row.operation; };
    auto at = std::find_if(panels.begin(), panels.end(), same);
    if (at == panels.end()) at = panels.insert(panels.end(), Panel{row.ranks, row.operation, {}});
    at->rows.push_back(row);
  }
  for (Panel& panel : panels) std::sort(panel.rows.begin(), panel.rows.end());
  return panels;
}

// The floor is drawn into every panel of as many ranks.
const Cell* cell_of(const Results& results, const Row& row, const std::string& peer) {
  return results.find(peer == "memcpy" ? Row{row.ranks, "memcpy", row.bytes} : row, peer);
}

// Powers of ten and of two that hold every panel, so that panels compare.
struct Axes {
  double low = std::numeric_limits<double>::max(), high = 0, small = low, large = 0;
  Axes(const Results& results, const std::vector<Panel>& panels) {
    for (const Panel& panel : panels)
      for (const Row& row : panel.rows)
        for (const std::string& peer : results.peers)
          if (const Cell* cell = cell_of(results, row, peer)) take(static_cast<double>(row.bytes), cell->median());
    low = std::floor(std::log10(low));
    high = std::ceil(std::log10(high));
  }
  void take(double bytes, double us) {
    low = std::min(low, us);
    high = std::max(high, us);
    small = std::min(small, bytes);
    large = std::max(large, bytes);
  }
  double x(uint64_t bytes) const {
    const double span = std::max(1.0, std::log2(large / small));
    return kLeft + (kWidth - kLeft - kRight) * std::log2(static_cast<double>(bytes) / small) / span;
  }
  double y(double us) const {
    return kHead + (kHeight - kHead - kFoot) * (high - std::log10(us)) / std::max(1.0, high - low);
  }
};

std::string decade_text(int decade) {
  static const char* const kTexts[] = {"10 ns", "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"};
  const int at = decade + 2;
  return at >= 0 && at < 9 ? kTexts[at] : fmt::format("1e{} us", decade);
}

std::string text(double x, double y, const char* anchor, const std::string& words, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more, words);
}

std::string grid(const Panel& panel, const Axes& axes) {
  std::string svg;
  const double right = kWidth - kRight, bottom = kHeight - kFoot;
  for (int d = static_cast<int>(axes.low); d <= static_cast<int>(axes.high); ++d) {
    const double y = axes.y(std::pow(10.0, d));
    svg +=
        fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#e2e2e2\"/>\n", kLeft, right, y, y);
    svg += text(kLeft - 6, y + 4, "end", decade_text(d));
  }
  for (size_t i = 0; i < panel.rows.size(); ++i) {
    const double x = axes.x(panel.rows[i].bytes);
    svg += fmt::format("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\" stroke=\"#efefef\"/>\n", x, x, kHead,
                       bottom);
    if (panel.rows.size() <= 7 || i % 2 == 0) svg += text(x, bottom + 16, "middle", size_text(panel.rows[i].bytes));
  }
  return svg + fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#8c8c8c\"/>\n",
                           kLeft, kHead, right - kLeft, bottom - kHead);
}

std::string line(const Results& results, const Panel& panel, const Axes& axes, size_t peer) {
  std::string points, dots;
  for (const Row& row : panel.rows) {
    const Cell* cell = cell_of(results, row, results.peers[peer]);
    if (!cell) continue;
    const double x = axes.x(row.bytes), y = axes.y(cell->median());
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>", x, y);
  }
  const bool ours = results.peers[peer] == "gsel", copied = results.peers[peer] == "memcpy";
  return fmt::format(
      "<g fill=\"{0}\"><polyline points=\"{1}\" fill=\"none\" stroke=\"{0}\" stroke-width=\"{2}\"{3}/>{4}</g>\n",
      kColors[peer % std::size(kColors)], points, ours ? 3 : 1.6, copied ? " stroke-dasharray=\"5 4\"" : "", dots);
}

std::string legend(const Results& results) {
  std::string svg;
  double x = 24;
  for (size_t i = 0; i < results.peers.size(); ++i) {
    const std::string& peer = results.peers[i];
    svg += fmt::format("<rect x=\"{:.0f}\" y=\"62\" width=\"22\" height=\"5\" fill=\"{}\"/>\n", x,
                       kColors[i % std::size(kColors)]);
    svg += text(x + 28, 69, "start", peer, peer == "gsel" ? " font-weight=\"bold\"" : "");
    x += 48 + 7.5 * static_cast<double>(peer.size());
  }
  return svg;
}

}  // namespace

std::string picture(const Results& results) {
  const auto panels = panels_of(results);
  const Axes axes(results, panels);
  const int rows = (static_cast<int>(panels.size()) + kColumns - 1) / kColumns;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"11\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      kColumns * kWidth + 16, kTop + rows * kHeight);
  svg += text(24, 28, "start", "Time of one call over its size, one host", " font-size=\"17\" font-weight=\"bold\"");
  svg += text(24, 47, "start", "median over rounds; lower is better; memcpy: every rank copies the same size at once");
  svg += legend(results);
  for (size_t i = 0; i < panels.size(); ++i) {
    svg += fmt::format("<g transform=\"translate({},{})\">\n", 8 + static_cast<int>(i) % kColumns * kWidth,
                       kTop - 8 + static_cast<int>(i) / kColumns * kHeight);
    svg += text(kLeft, 20, "start", fmt::format("{}, {} ranks", panels[i].operation, panels[i].ranks),
                " font-size=\"13\" font-weight=\"bold\"");
    svg += grid(panels[i], axes);
    for (size_t peer = 0; peer < results.peers.size(); ++peer) svg += line(results, panels[i], axes, peer);
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace bench
