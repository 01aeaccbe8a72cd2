// schedules.h: `gsel program --schedule`: schedules of a pipeline simulated: as a table, in the terminal, as pictures.
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

// All but the names.
void add_schedule_options(Parser& group, ScheduleOptions& options);
int show_schedules(const ScheduleOptions& options, bool json);

}  // namespace gsel::cli
