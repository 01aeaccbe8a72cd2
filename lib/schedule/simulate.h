// schedule/simulate.h: computes when every action of a schedule begins and ends, from the durations of actions,
// in one pass over the rows. Does not know who asks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace gsel {

// Of one stage for one micro-batch.
struct StageTimes {
  double forward = 0, backward_input = 0, backward_weight = 0;
};

struct TimedAction {
  gsel_action action;
  double begin = 0, end = 0;
};

struct Simulation {
  std::string name;
  int32_t n_microbatches = 0;
  std::vector<StageTimes> times;  // by stage
  double unit_s = 0;              // seconds of a unit of time; 0: a unit of its own
  double hop = 0;
  double makespan = 0, ideal = 0, longest_rank_span = 0;
  std::vector<double> busy;              // by rank
  std::vector<double> peak_activations;  // by rank, of its whole share; freed at backward_weight
  std::vector<double> peak_until_input;  // the same, freed at backward_input
  // By boundary between stages; 0 where one rank has both sides.
  std::vector<int64_t> messages_forward, messages_backward;
  std::vector<std::vector<TimedAction>> rows;

  // Of the time that passes, and of the work; 0 where there is none.
  double bubble_of_makespan() const { return makespan > 0 ? (makespan - ideal) / makespan : 0; }
  double bubble_of_ideal() const { return ideal > 0 ? (makespan - ideal) / ideal : 0; }
};

// Times of stages from those of a rank's whole share, of which each of its stages takes an equal part.
std::vector<StageTimes> equal_parts(const Schedule& schedule, const StageTimes& share);

// times: by stage. The schedule is one that check_schedule accepts.
Simulation simulate(const Schedule& schedule, std::span<const StageTimes> times, double hop);
std::string to_json(const Simulation& simulation);

}  // namespace gsel
