// schedule/schedule.h: a pipeline schedule as data: one row of actions per rank, and the rank of each stage. Does not
// know layers and messages: the strategy that lowers a schedule to a program determines which values cross stages.
#pragma once

#include <gsel/schedule.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gsel {

// Place of an action in its text, from 1.
struct ActionPlace {
  int32_t line = 0, column = 0;
};

struct Schedule {
  std::string name;  // canonical name, or the file name
  int32_t n_microbatches = 0;
  std::vector<int32_t> rank_of;                  // by stage
  std::vector<std::vector<gsel_action>> rows;    // by rank
  std::vector<std::vector<ActionPlace>> places;  // [rank][action] if read from text; else empty

  int32_t n_ranks() const { return static_cast<int32_t>(rows.size()); }
  int32_t n_stages() const { return static_cast<int32_t>(rank_of.size()); }
  // Index of a (stage, micro-batch) in tables.
  size_t cell(int32_t stage, int32_t microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(n_microbatches) + static_cast<size_t>(microbatch);
  }
};

// Limits for requested and parsed schedules.
constexpr int32_t kMostStages = 1 << 12;
constexpr int32_t kMostMicrobatches = 1 << 20;
constexpr int64_t kMostCells = 1 << 22;  // stages x micro-batches

// By name; GSEL_ERR_CONFIG and GSEL_ERR_ARG as for gsel_schedule_create.
Schedule make_schedule(std::string_view name, int32_t ranks, int32_t microbatches, int32_t chunks);
// "naive, gpipe, ..."
std::string schedule_names();

// Parses rows of text and checks the schedule. GSEL_ERR_PARSE, GSEL_ERR_PROGRAM.
Schedule parse_schedule(std::string_view text, const std::string& file);
std::string to_text(const Schedule& schedule);
std::string to_text(const gsel_action& action);  // "2F0"

// Number of stages by rank.
std::vector<int32_t> stages_of_ranks(const Schedule& schedule);
// Place of an action for an error; without a line unless the schedule was read from text.
Place place_of(const Schedule& schedule, int32_t rank, size_t i);
// "file:line: column 7: ", as far as known, to prefix a message.
std::string cell_prefix(const Place& place);

// Checks that every stage sees every micro-batch once, on its rank, forward before backward, without deadlock.
// GSEL_ERR_PROGRAM naming rank, action and, if it was read from text, line and column.
void check_schedule(const Schedule& schedule);

}  // namespace gsel
