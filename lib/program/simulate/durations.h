// program/simulate/durations.h: what the instructions of a program take, as a simulation asks for it. Who answers knows
// the machine: measured layers, links by latency and bandwidth. Does not know how ranks wait for each other.
#pragma once

#include <array>

#include "program/program.h"

namespace gsel {

// Of an exchange, once all who take part have come to it: seconds in which no processor works, then seconds of work on
// the processor of each rank, which other work there slows down.
struct ExchangeTime {
  double wire = 0, work = 0;
};

class Durations {
 public:
  virtual ~Durations() = default;
  // What the rank computes alone: a callback, all phases together; an input; the optimizer; a sum of squares.
  virtual double compute(const Program& program, const gsel_instr& instr) const = 0;
  // Calls of an instruction along an axis, one behind the other. bytes: that this rank sends, as program/traffic.h
  // counts them; the ranks of a call take what the slowest of them takes.
  virtual ExchangeTime exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                                uint64_t bytes) const = 0;
  // To another rank of the pipeline, which has waited for it.
  virtual ExchangeTime message(const Program& sender, int32_t to, int64_t bytes) const = 0;
  // A rank that has waited for a collective longer than `after` goes on so much later than what it waited for: it
  // slept.
  struct Wake {
    double after = 0, takes = 0;
  };
  virtual Wake wake() const { return {}; }
};

// The time of n bytes is latency_s + n * seconds_per_byte.
struct LinkTime {
  double latency_s = 0, seconds_per_byte = 0;
};

// Rounds of a ring in one call among so many ranks: an all-reduce has twice those of what others do.
int32_t rounds_of(gsel_instr_kind kind, int32_t ranks);
// Of calls on a ring of such links: bytes that a rank sends, and the latency of each round.
double ring_seconds(const LinkTime& link, gsel_instr_kind kind, int32_t ranks, uint64_t calls, uint64_t bytes);

// Layers as given, each axis with its links; no processor is shared.
class GivenDurations : public Durations {
 public:
  struct OfLayer {
    double forward = 0, backward_input = 0, backward_weight = 0;  // of a micro-batch
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
