// schedules.h: `gsel program --schedule`: simulates pipeline schedules and shows them as a table, in the terminal, or
// as pictures.
#pragma once

#include <string>
#include <vector>

#include "parser.h"

namespace gsel::cli {

constexpr int kMostSchedules = 100;

struct ScheduleOptions {
  std::vector<std::string> names;
  std::string stages, microbatches, chunks, times, hop;
  std::string svg, chrome;
  bool text = false, rows = false;
};

// All options except the names.
void add_schedule_options(Parser& group, ScheduleOptions& options);
int show_schedules(const ScheduleOptions& options, bool json);

}  // namespace gsel::cli
