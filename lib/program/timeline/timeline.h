// program/timeline/timeline.h: what ranks did when, as spans of time on lanes. They are read from steps (docs/step.md),
// recordings of calls (docs/trace.md) and simulated schedules (docs/pipeline.md), and drawn as SVG and as Chrome's
// trace events. Does not know who measured, and what for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/timeline/timeline_chart.h"

namespace gsel {

struct Span {
  std::string kind;                 // colour and class
  std::string name;                 // as short as a box
  std::string text;                 // all of it
  std::string note;                 // "failed"; mostly empty
  double begin_us = 0, end_us = 0;  // from the lane's zero
  int32_t stage = -1;               // of a pipeline; -1: unknown
};

// Of a step's rank in its mesh.
struct Coordinates {
  int32_t n_ranks = 1, n_replicas = 1;  // on the pipeline axis; of the pipeline, on the others
  int32_t pipeline_rank = 0, replica = 0;
};

// One thread of events: spans may overlap where several were under way.
struct Lane {
  int32_t process = 0;  // groups lanes
  std::string process_name;
  int32_t thread = 0;
  std::string name;
  double zero_us = 0;    // on the clock of its host
  bool of_step = false;  // of a rank's step, whose host may be another one
  std::vector<Span> spans;
  Coordinates coordinates{};

  bool of_pipeline() const { return coordinates.n_ranks > 1; }
};

struct Timeline {
  std::vector<Lane> lanes;
  std::vector<Chart> schedules;  // simulated
};

// Adds what a document has; nothing when it throws. GSEL_ERR_PARSE.
void add_document(Timeline& timeline, std::string_view json, const std::string& file);

// Zero of each lane where they are drawn together: that of its clock, unless steps have no moment in common, which then
// begin together: their files are of different steps, or of hosts with clocks of their own.
std::vector<double> common_zeros(const Timeline& timeline);

// What the ranks of a pipeline did in their steps, instructions joined to the actions they are part of: a chart, or
// none when no step is one of a pipeline.
std::vector<Chart> recorded_charts(const Timeline& timeline);

// Self-contained, and the same text for the same timeline.
std::string to_svg(const Timeline& timeline);
std::string to_chrome(const Timeline& timeline);

}  // namespace gsel
