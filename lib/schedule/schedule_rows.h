// schedule/schedule_rows.h: one rank's row of each named schedule, as pure functions of the pipeline's shape. The
// caller, schedule.cc, checks the shape beforehand.
#pragma once

#include <gsel/schedule.h>

#include <cstdint>
#include <vector>

namespace gsel {

struct PipelineShape {
  int32_t ranks = 1, microbatches = 1, chunks = 1;
};

using ScheduleRow = std::vector<gsel_action>;

ScheduleRow naive_row(const PipelineShape& shape, int32_t rank);
ScheduleRow gpipe_row(const PipelineShape& shape, int32_t rank);
ScheduleRow one_f_one_b_row(const PipelineShape& shape, int32_t rank);
ScheduleRow interleaved_row(const PipelineShape& shape, int32_t rank);
ScheduleRow zb_h1_row(const PipelineShape& shape, int32_t rank);
ScheduleRow interleaved_zb_row(const PipelineShape& shape, int32_t rank);
ScheduleRow zb_h2_row(const PipelineShape& shape, int32_t rank);
ScheduleRow zb_v_row(const PipelineShape& shape, int32_t rank);
ScheduleRow dualpipe_v_row(const PipelineShape& shape, int32_t rank);

// Rank of a stage: looping as in 0 1 2 0 1 2, V-shaped as in 0 1 2 2 1 0.
int32_t looping_rank(const PipelineShape& shape, int32_t stage);
int32_t v_rank(const PipelineShape& shape, int32_t stage);

// In an interleaved schedule, micro-batches go through the chunks in rounds of equal size: `ranks` or more
// micro-batches, or all in one round if there are fewer. 0 if this is impossible.
int32_t microbatches_of_round(int32_t ranks, int32_t microbatches);

}  // namespace gsel
