// plan/measure.h: measures this machine for plan/measured.h: steps of a model on one rank and on several at the same
// time, and calls of a communicator, within about two seconds. Does not know what is forecast from it.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "plan/measured.h"
#include "train/execute/step_record.h"
#include "train/trainer.h"

namespace gsel::plan {

struct MeasureOptions {
  std::vector<int64_t> samples;  // per micro-batch, ascending
  double seconds = 2;            // total, approximate
};

// A collective of comm, whose ranks must be idle otherwise; the result is the same on all ranks. config: [train] has
// the training settings. model: finished, with callbacks. GSEL_ERR_MODEL, GSEL_ERR_CALLBACK as for a trainer.
Measured measure(Communicator& comm, const std::shared_ptr<Model>& model, const DataSource& data, const Config& config,
                 const MeasureOptions& options);

// Collects times from recorded steps of one rank, made by measure() or elsewhere.
class StepTimes {
 public:
  void add(const Program& program, const StepRecord& record);
  void take(Measured& measured) const;  // medians
  double layers_s() const;              // one call of each layer and direction, with the largest micro-batches

 private:
  using Seconds = std::vector<double>;
  std::map<std::string, std::array<std::map<double, Seconds>, Measured::kCalls>> layers_;
  std::map<std::string, std::map<double, Seconds>> inputs_;
  std::map<double, Seconds> optimizer_, norm_;
  Seconds beside_;
};

double median_of(std::vector<double> numbers);

// Measures collectives of growing groups, messages and copies for `seconds`. A collective of all ranks of comm.
void time_links(Communicator& comm, double seconds, Measured& measured);

}  // namespace gsel::plan
