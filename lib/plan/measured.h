// plan/measured.h: measured durations of a model's layers and a communicator's calls on one machine, and the durations
// derived from them for the programs of any configuration on it. Stored as JSON. Does not know how they were measured.
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

// Seconds by size: linear between the points, proportional beyond the last.
struct Curve {
  std::vector<std::pair<double, double>> points;  // size and seconds, in order
  double at(double size) const;
  bool operator==(const Curve&) const = default;
};

struct Measured {
  static constexpr size_t kCalls = 4;
  static constexpr size_t call_of(int32_t callback) { return static_cast<size_t>(callback - GSEL_FORWARD); }

  std::map<std::string, std::array<Curve, kCalls>> layers;  // by layer name; size: samples
  std::map<std::string, Curve> inputs;                      // by value name; size: samples
  Curve optimizer, norm;                                    // size: elements
  double copy_byte_s = 0;                                   // memory copies, row by row
  double wake_s = 0;                                        // from a message to the wake-up of its receiver
  double step_s = 0;                                        // of a step, outside its instructions
  std::vector<double> throughput{1};                        // of CPUs, see program/simulate/agenda.h
  // Duration of a call among n ranks on an idle machine; size: bytes that a rank sends. For a message (SEND, among 2)
  // the sender continues computing after it starts the message.
  std::map<std::pair<int32_t, gsel_collective_kind>, Curve> links;
  bool operator==(const Measured&) const = default;
};

std::string to_json(const Measured& measured);
// Throws GSEL_ERR_PARSE.
Measured read_measured(std::string_view json, const std::string& file);

// All ranks are on one machine and share its CPUs.
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

  // The work of each rank in a call that takes `seconds` on an idle machine.
  ExchangeTime work_of(double seconds, int32_t ranks) const;
  const Curve* link(int32_t ranks, gsel_collective_kind kind) const;

  const Measured& measured_;
};

// The part of a layer's work that this rank has: that of the divided tensor with the smallest shard.
double share_of_work(const Program& program, const ProgramLayer& layer);

}  // namespace gsel::plan
