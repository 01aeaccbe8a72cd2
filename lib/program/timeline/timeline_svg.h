// program/timeline/timeline_svg.h: parts of timeline pictures: panels, one below the other on a page. Colours work on
// white and black pages. Drawing is part of libgsel and not of the `gsel` command: gsel_timeline_draw and
// gsel_plan_picture are public calls, so that any process and binding draws, and the command is one of their clients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/timeline/timeline.h"

namespace gsel {

struct Panel {
  double width = 0, height = 0;
  std::string style;  // CSS rules
  std::string body;
};

Panel tracks_panel(const Timeline& timeline);
Panel charts_panel(const std::vector<Chart>& charts);

// Escapes text for XML; invalid characters become '?'.
std::string xml(std::string_view text);
std::string milliseconds(double us);
// 1, 2 or 5 times a power of ten, so that about `parts` ticks fill the length.
double tick_of(double length, double parts);

}  // namespace gsel
