// support/pipeline_maker.h: good programs of pipelines, made at random from the rules of docs/program.md and not by the
// plugins: any model with skips, tied and frozen parameters, any cuts, any ranks of stages, any order of actions that
// can run at all, with the data axis beside it.
#pragma once

#include <vector>

#include "program/program.h"
#include "support/draw.h"

namespace gsel::test {

enum class Sharding { none, state, gradient, param };

// What a pipeline is drawn to be.
struct PipelineShape {
  int32_t pipeline = 2, data = 1, chunks = 1, microbatches = 2;
  Sharding sharding = Sharding::none;
  bool clip = false, overflow = false;
  bool halves = false;  // backward in two actions, where a layer has them
  bool empty = false;   // a micro-batch without samples
  bool defers = false;  // norm and overflow over the pipeline, where there are any

  static PipelineShape drawn(Draw& draw);
};

// Of all ranks.
std::vector<Program> make_pipeline(const PipelineShape& shape, Draw& draw);

}  // namespace gsel::test
