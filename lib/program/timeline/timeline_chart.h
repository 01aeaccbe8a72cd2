// program/timeline/timeline_chart.h: a pipeline as a chart: a row for each rank, with a box for each action, the
// forward or backward of a stage for a micro-batch. Serves simulated schedules and measured steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel {

class JsonObject;

struct ChartAction {
  char kind = 'F';  // F, I, W, B as in gsel/schedule.h; S: what ends a step
  int32_t stage = -1, chunk = 0, microbatch = -1;
  double begin = 0, end = 0;
};

// What a rank waited for or started between its actions.
struct ChartMark {
  std::string kind, text;
  double begin = 0, end = 0;
};

struct ChartRow {
  std::string name;
  std::string peak;              // activations held at once; empty: unknown
  int32_t process = 0, row = 0;  // of Chrome
  std::vector<ChartAction> actions;
  std::vector<ChartMark> marks;
};

struct Chart {
  std::string title, details;
  std::string process_name;
  bool measured = false;  // times are microseconds; else in a unit of the schedule's own
  double unit_s = 0;      // seconds of that unit; 0: not told
  int32_t chunks = 1;     // stages of each rank
  std::vector<ChartRow> rows;
};

// A rank's stages in order are its chunks 0, 1, ...; the end of a step is of chunk 0. `most` becomes at least their
// number.
void number_chunks(std::vector<ChartAction>& actions, int32_t& most);
// "2F0", as schedules are written; "F0" where the stage is unknown.
std::string to_text(const ChartAction& action);
// The document of a simulated schedule (docs/pipeline.md), read strictly: at most `n_actions` of them. GSEL_ERR_PARSE.
Chart simulated_chart(JsonObject& root, size_t n_actions);
// "33", "25.5", "0.333"
std::string amount_text(double amount);

}  // namespace gsel
