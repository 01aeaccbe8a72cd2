// schedule/simulate.h: computes when every action of a schedule begins and ends, from the durations of actions, in one
// pass over the rows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace gsel {

// For one stage and micro-batch.
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
  double unit_s = 0;              // seconds per unit of time; 0: an abstract unit
  double hop = 0;
  double makespan = 0, ideal = 0, longest_rank_span = 0;
  std::vector<double> busy;              // by rank
  std::vector<double> peak_activations;  // by rank, relative to its share of the model; freed at backward_weight
  std::vector<double> peak_until_input;  // the same, freed at backward_input
  // By boundary between stages; 0 if both sides are on one rank.
  std::vector<int64_t> messages_forward, messages_backward;
  std::vector<std::vector<TimedAction>> rows;

  // Relative to elapsed time, and to work; 0 if these are 0.
  double bubble_of_makespan() const { return makespan > 0 ? (makespan - ideal) / makespan : 0; }
  double bubble_of_ideal() const { return ideal > 0 ? (makespan - ideal) / ideal : 0; }
};

// Times of stages from the times of a rank's whole share, divided evenly among its stages.
std::vector<StageTimes> equal_stages(const Schedule& schedule, const StageTimes& share);

// times: by stage. check_schedule must accept the schedule.
Simulation simulate(const Schedule& schedule, std::span<const StageTimes> times, double hop);
std::string to_json(const Simulation& simulation);

}  // namespace gsel
