// plan/candidate_durations.h: durations of the instructions of a candidate's programs by the analytic model, so that a
// simulation of the programs and the forecast of the search use the same times.
#pragma once

#include "plan/finalist.h"
#include "plan/search.h"

namespace gsel::plan {

// The forecast's time of all stages on equal devices is divided among layers by their operations; it includes
// collectives of the sharing axis. A rank's time is scaled by the forecast for its device and its shard of the work. A
// collective of the data axis gets its part of that axis's forecast by bytes. The optimizer gets its part of the
// optimizer's forecast by the elements it steps and by the device's memory. Reductions between stages, such as of an
// embedding that two stages hold, take the bandwidth of their link.
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
  std::vector<OfLayer> layers_;   // by layer of the programs, on equal devices
  std::vector<double> slowness_;  // by rank: factor on the times; empty: all devices are equal
  std::vector<double> step_s_;    // by rank: optimizer time of one element
  double data_byte_s_ = 0, pipeline_byte_s_ = 0, summed_byte_s_ = 0;
};

// Compiles the candidate's gsel.toml, verifies it, checks it against the memory of its devices, and simulates it.
// model: of the request's workload, as describe() makes it. Errors: as CompiledJob, and GSEL_ERR_NOMEM when a rank does
// not fit.
Finalist price(const SearchInput& input, const Candidate& candidate, const std::string& toml, const Model& model);

// Estimated number of instructions that price() handles, for callers that price many layouts.
double instructions_of(const Model& model, const Layout& layout);

}  // namespace gsel::plan
