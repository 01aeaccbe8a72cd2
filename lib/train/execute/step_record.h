// train/execute/step_record.h: what a run leaves of a step: begin and end of each instruction, bytes by axis and kind,
// memory by part. train/report/step_record.h writes it.
#pragma once

#include <gsel/train.h>

#include <array>
#include <string>
#include <vector>

#include "program/program.h"
#include "train/memory/ledger.h"

namespace gsel {

// Begin and end of an instruction on the calling thread, or of an asynchronous one from start to completion. Seconds
// since the step began.
struct Interval {
  size_t position = 0;
  double begin = 0, end = 0;
  bool asynchronous = false;  // on the stream of its axis
};

struct AxisCount {
  gsel_axis axis;
  gsel_instr_kind kind;
  gsel_comm_count count;
};

struct StepRecord {
  gsel_step_report report{};
  int64_t began_ns = 0;  // os::now_ns() when the step began: a common clock for ranks of one host
  std::vector<Interval> intervals;
  std::vector<AxisCount> counts;          // of this step
  std::array<double, kAxes> exposed_s{};  // report.exposed_comm_s by axis
  MemoryPartBytes forecast{}, peak{};
  int32_t graph_launches = 0;
  bool on_device = false;  // times are the host's, until work was given to the device
  std::string no_graphs;   // why train.graph = "auto" makes none
};

}  // namespace gsel
