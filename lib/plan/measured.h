// plan/measured.h: what calls of a model and of a communicator take on a machine, as it was measured, and the durations
// that follow for the programs of any configuration there. Kept as JSON. Does not know how it was measured.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/simulate/durations.h"
#include "program/simulate/simulate_job.h"

namespace gsel::plan {

// Seconds by size: straight lines between the points, in proportion beyond the last.
struct Curve {
  std::vector<std::pair<double, double>> points;  // size and seconds, in order
  double at(double size) const;
  bool operator==(const Curve&) const = default;
};

struct Measured {
  enum Call : uint8_t { forward, backward_input, backward_weight, backward };
  static constexpr size_t kCalls = 4;

  std::map<std::string, std::array<Curve, kCalls>> layers;  // by name; of samples
  std::map<std::string, Curve> inputs;                      // by name of the value; of samples
  Curve optimizer, norm;                                    // of elements
  double copy_byte_s = 0;                                   // of memory to memory, row by row
  double wake_s = 0;                                        // from a message to who slept until it came
  double step_s = 0;                                        // of a step beside its instructions
  std::vector<double> throughput{1};                        // of processors, see program/simulate/processors.h
  // Of a call among so many ranks, that do nothing else; by bytes that a rank sends. A message
  // (SEND, among 2) is one that its sender starts before it goes on computing.
  std::map<std::pair<int32_t, gsel_collective_kind>, Curve> links;
  bool operator==(const Measured&) const = default;
};

std::string to_json(const Measured& measured);
// GSEL_ERR_PARSE.
Measured read_measured(std::string_view json, const std::string& file);

// All ranks are on the machine, and share its processors.
class MeasuredDurations : public Durations {
 public:
  explicit MeasuredDurations(const Measured& measured) : measured_(measured) {}

  double compute(const Program& program, const gsel_instr& instr) const override;
  ExchangeTime exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                        uint64_t bytes) const override;
  ExchangeTime message(const Program& sender, int32_t to, int64_t bytes) const override;
  Wake wake() const override { return {kPolls, measured_.wake_s}; }

  Hosts hosts(int32_t ranks) const;

 private:
  static constexpr double kPolls = 100e-6;  // a rank that waits no longer than this does not sleep

  // Work of each rank in a call that takes so long while nobody does anything else.
  ExchangeTime work_of(double seconds, int32_t ranks) const;
  const Curve* link(int32_t ranks, gsel_collective_kind kind) const;

  const Measured& measured_;
};

// The part of a layer's work that this rank has: of the tensors that ranks divide, the one with the smallest part.
double share_of_work(const Program& program, const ProgramLayer& layer);

}  // namespace gsel::plan
