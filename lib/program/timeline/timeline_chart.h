// program/timeline/timeline_chart.h: a pipeline as a chart: a row per rank, with a box per action (the forward or
// backward of a stage for a micro-batch). Used for simulated schedules and measured steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel {

class JsonObject;

struct ChartAction {
  char kind = 'F';  // F, I, W, B as in gsel/schedule.h; S: the end of a step
  int32_t stage = -1, chunk = 0, microbatch = -1;
  double begin = 0, end = 0;
};

// A wait or start between a rank's actions.
struct ChartMark {
  std::string kind, text;
  double begin = 0, end = 0;
};

struct ChartRow {
  std::string name;
  std::string peak;              // activations held at once; empty: unknown
  int32_t process = 0, row = 0;  // Chrome's ids
  std::vector<ChartAction> actions;
  std::vector<ChartMark> marks;
};

struct Chart {
  std::string title, details;
  std::string process_name;
  bool measured = false;  // times are in microseconds; else in the schedule's unit
  double unit_s = 0;      // seconds per unit; 0: unknown
  int32_t chunks = 1;     // stages per rank
  std::vector<ChartRow> rows;
};

// Numbers a rank's stages as chunks 0, 1, ...; the end of a step has chunk 0. Raises `most` to their number.
void number_chunks(std::vector<ChartAction>& actions, int32_t& most);
// "2F0", the notation of schedules; "F0" if the stage is unknown.
std::string to_text(const ChartAction& action);
// Parses a simulated schedule (docs/pipeline.md) strictly, with at most `n_actions` actions. GSEL_ERR_PARSE.
Chart simulated_chart(JsonObject& root, size_t n_actions);
// "33", "25.5", "0.333"
std::string amount_text(double amount);

}  // namespace gsel
