// schedule_text.cc: see schedule_text.h.
#include "schedule_text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kIdle = '.', kGoesOn = '-';
constexpr size_t kColumns = 180, kFewest = 20;

struct Box {
  std::string label;  // "F3"
  double begin, end;
};

struct Line {
  std::string name;
  std::vector<Box> boxes;
};

// The boxes of a rank; "5F3" of a rank with stages 1 and 5 becomes "f3".
std::vector<Box> boxes_of(const Json& row) {
  std::map<int64_t, size_t> chunks;
  for (const Json& timed : row) chunks[std::stoll(timed.at("action").get<std::string>())] = 0;
  size_t n = 0;
  for (auto& [stage, chunk] : chunks) chunk = n++;
  std::vector<Box> boxes;
  for (const Json& timed : row) {
    const auto action = timed.at("action").get<std::string>();
    std::string label = action.substr(action.find_first_not_of("0123456789"));
    if (chunks[std::stoll(action)] % 2 == 1) label[0] = static_cast<char>(std::tolower(label[0]));
    boxes.push_back({std::move(label), timed.at("begin").get<double>(), timed.at("end").get<double>()});
  }
  return boxes;
}

std::string drawn(const Line& line, double scale, size_t columns) {
  std::string text(columns, kIdle);
  const auto column = [&](double time) { return std::min(columns, static_cast<size_t>(std::llround(time * scale))); };
  for (const Box& box : line.boxes) {
    const size_t from = column(box.begin), width = column(box.end) - from;
    if (width > box.label.size()) {
      text.replace(from, width, box.label + std::string(width - box.label.size(), kGoesOn));
      text[from + width - 1] = ' ';
    } else if (width > 0) {
      text.replace(from, width, std::string(width, box.label[0]));
    }
  }
  return text.erase(text.find_last_not_of(' ') + 1);
}

}  // namespace

std::string schedule_text(const Json& simulation, size_t columns) {
  std::vector<Line> lines;
  double shortest = std::numeric_limits<double>::max();
  size_t name = 0, label = 1;
  for (const Json& row : simulation.at("rows")) {
    lines.push_back({"rank " + std::to_string(lines.size()), boxes_of(row)});
    name = std::max(name, lines.back().name.size());
    for (const Box& box : lines.back().boxes) {
      label = std::max(label, box.label.size());
      if (box.end > box.begin) shortest = std::min(shortest, box.end - box.begin);
    }
  }
  const double makespan = simulation.at("makespan").get<double>();
  const size_t room = std::max(columns, name + 2 + kFewest) - name - 2;
  double scale = static_cast<double>(label + 1) / shortest;
  if (!(makespan > 0) || makespan * scale > static_cast<double>(room))
    scale = makespan > 0 ? static_cast<double>(room) / makespan : 0;
  const auto width = static_cast<size_t>(std::llround(makespan * scale));
  std::string out;
  for (const Line& line : lines)
    out += line.name + std::string(name + 2 - line.name.size(), ' ') + drawn(line, scale, width) + "\n";
  return out;
}

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumns;
}

}  // namespace gsel::cli
