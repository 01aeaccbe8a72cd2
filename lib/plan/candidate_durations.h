// plan/candidate_durations.h: what instructions of a candidate's programs take by the analytic model, so that a
// simulation of the programs and the forecast of the search rest on the same times. Does not know how they were found.
#pragma once

#include "plan/finalist.h"
#include "plan/search.h"

namespace gsel::plan {

// The time of all stages on alike devices is divided among layers by their operations; collectives of the sharing axis
// are part of it, as in the forecast. A rank takes so many times as long as the forecast has for its device and its
// part of the work. A collective of the data axis takes its part of the forecast of the data axis, by its bytes. The
// optimizer takes its part of the forecast of the optimizer, by the elements that it steps and the device's memory.
// What stages reduce together, such as an embedding that two of them hold, goes at the rate of their link.
class CandidateDurations : public Durations {
 public:
  CandidateDurations(const SearchInput& input, const Candidate& candidate, const CompiledJob& job);

  double compute(const Program& program, const gsel_instr& instr) const override;
  ExchangeTime exchange(const Program& program, const gsel_instr& instr, gsel_axis axis, uint64_t calls,
                        uint64_t bytes) const override;
  ExchangeTime message(const Program& sender, int32_t to, int64_t bytes) const override;

 private:
  struct OfLayer {
    double forward = 0, backward = 0;
  };
  std::vector<OfLayer> layers_;   // by layer of the programs, on alike devices
  std::vector<double> slowness_;  // by rank: how many times as long; empty: devices are alike
  std::vector<double> step_s_;    // by rank: of an element that the optimizer steps
  double data_byte_s_ = 0, pipeline_byte_s_ = 0, summed_byte_s_ = 0;
};

// The candidate's gsel.toml compiled, verified, checked against the memory of its devices, and simulated. model: of the
// request's workload, such as describe makes. Refused: as CompiledJob, and GSEL_ERR_NOMEM where a rank does not fit.
Finalist price(const SearchInput& input, const Candidate& candidate, const std::string& toml, const Model& model);

// Instructions that pricing goes through, about: what a caller goes by who prices many.
double instructions_of(const Model& model, const Layout& layout);

}  // namespace gsel::plan
