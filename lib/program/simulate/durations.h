// program/simulate/durations.h: the interface from which a simulation gets durations of instructions. Implementations
// know the machine: measured layers, link latency and bandwidth. Does not know how ranks wait for each other.
#pragma once

#include <array>

#include "program/program.h"

namespace gsel {

// Durations of an exchange after its last rank has arrived: first seconds without processor work, then seconds of work
// on the processor of each rank, which share it with other work.
struct ExchangeTime {
  double wire = 0, work = 0;
};

class Durations {
 public:
  virtual ~Durations() = default;
  // Local computation: a callback with all its phases, an input, the optimizer, a sum of squares.
  virtual double compute(const Program& program, const gsel_instr& instr) const = 0;
  // Consecutive calls of an instruction on an axis. bytes: sent by this rank, counted as in program/traffic.h. The
  // slowest rank of a call determines its duration.
  virtual ExchangeTime exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                                uint64_t bytes) const = 0;
  // A message to another pipeline rank, which waits for it.
  virtual ExchangeTime message(const Program& sender, int32_t to, int64_t bytes) const = 0;
  // A rank that waited for a collective longer than `after` resumes `takes` seconds late, because its thread slept.
  struct Wake {
    double after = 0, takes = 0;
  };
  virtual Wake wake() const { return {}; }
};

// n bytes take latency_s + n * seconds_per_byte.
struct LinkTime {
  double latency_s = 0, seconds_per_byte = 0;
};

// Ring steps of one call among `ranks` ranks: an all-reduce has twice those of the other collectives.
int32_t rounds_of(gsel_instr_kind kind, int32_t ranks);
// Time of `calls` calls on a ring of such links. bytes: sent per rank.
double ring_seconds(const LinkTime& link, gsel_instr_kind kind, int32_t ranks, uint64_t calls, uint64_t bytes);

// Given times per layer and links per axis; processors are not shared.
class GivenDurations : public Durations {
 public:
  struct OfLayer {
    double forward = 0, backward_input = 0, backward_weight = 0;  // per micro-batch
  };
  std::vector<OfLayer> layers;  // by layer of the program
  std::array<LinkTime, kAxes> links{};
  double step_seconds_per_element = 0;  // of the optimizer

  double compute(const Program& program, const gsel_instr& instr) const override;
  ExchangeTime exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                        uint64_t bytes) const override;
  ExchangeTime message(const Program& sender, int32_t to, int64_t bytes) const override;
};

}  // namespace gsel
