// program/timeline/timeline_svg.h: the parts that pictures of timelines are made from: panels that stand below each
// other on one page. Colours work on a white and on a black page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/timeline/timeline.h"

namespace gsel {

struct Panel {
  double width = 0, height = 0;
  std::string style;  // rules of CSS
  std::string body;
};

Panel lanes_panel(const Timeline& timeline);
Panel charts_panel(const std::vector<Chart>& charts);

// Text for XML: what it cannot hold becomes '?'.
std::string xml(std::string_view text);
std::string milliseconds(double us);
// 1, 2 or 5 times a power of ten, such that about `parts` of them fill the length.
double tick_of(double length, double parts);

}  // namespace gsel
