// program/timeline/timeline.h: what ranks did when, as spans of time on tracks. Timelines are read from steps
// (docs/step.md), recordings of calls (docs/trace.md) and simulated schedules (docs/pipeline.md), and drawn as SVG or
// as Chrome's trace events. Does not know who measured them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/timeline/timeline_chart.h"

namespace gsel {

struct Span {
  std::string kind;                 // selects colour and class
  std::string name;                 // short enough for a box
  std::string text;                 // full text
  std::string note;                 // "failed"; mostly empty
  double begin_us = 0, end_us = 0;  // since the track's zero
  int32_t stage = -1;               // pipeline stage, or -1
};

// Coordinates of a step's rank in its mesh.
struct Coordinates {
  int32_t n_ranks = 1, n_replicas = 1;  // size of the pipeline axis; number of pipelines
  int32_t pipeline_rank = 0, replica = 0;
};

// Events of one thread; spans may overlap.
struct Track {
  int32_t process = 0;  // groups tracks
  std::string process_name;
  int32_t thread = 0;
  std::string name;
  double zero_us = 0;    // on its host's clock
  bool of_step = false;  // of a rank's step, perhaps on another host
  std::vector<Span> spans;
  Coordinates coordinates{};

  bool of_pipeline() const { return coordinates.n_ranks > 1; }
};

struct Timeline {
  std::vector<Track> tracks;
  std::vector<Chart> schedules;  // simulated
};

// Adds a document completely, or nothing when it throws. GSEL_ERR_PARSE.
void add_document(Timeline& timeline, std::string_view json, const std::string& file);

// Start time of each track in a common picture, from its host's clock. Steps that do not overlap all start at 0: their
// files are from different steps, or from hosts whose clocks differ.
std::vector<double> common_zeros(const Timeline& timeline);

// What pipeline ranks did in their steps, with instructions joined to actions: one chart, or none if no step has a
// pipeline.
std::vector<Chart> recorded_charts(const Timeline& timeline);

// Self-contained and deterministic.
std::string to_svg(const Timeline& timeline);
std::string to_chrome(const Timeline& timeline);

}  // namespace gsel
