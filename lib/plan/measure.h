// plan/measure.h: measures this machine for plan/measured.h: steps of a model on one rank alone and on several at once,
// and calls of a communicator, all within about two seconds. Does not know what is forecast from it.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "plan/measured.h"
#include "train/report/step_record.h"
#include "train/trainer.h"

namespace gsel::plan {

struct MeasureOptions {
  std::vector<int64_t> samples;  // of micro-batches, ascending
  double seconds = 2;            // for all of it, about
};

// A collective of all ranks of comm, which do nothing else meanwhile; all get the same result. config: of [train] what
// the model is trained with. model: with callbacks; it is finished. GSEL_ERR_MODEL, GSEL_ERR_CALLBACK as a trainer.
Measured measure(Communicator& comm, const std::shared_ptr<Model>& model, const DataSource& data, const Config& config,
                 const MeasureOptions& options);

// Collects what recorded steps of one rank took; for measure, and for steps that were recorded elsewhere.
class StepTimes {
 public:
  void add(const Program& program, const StepRecord& record);
  void take(Measured& measured) const;  // medians
  double layers_s() const;              // of one call of each layer and direction, of the largest micro-batches

 private:
  using Seconds = std::vector<double>;
  std::map<std::string, std::array<std::map<double, Seconds>, Measured::kCalls>> layers_;
  std::map<std::string, std::map<double, Seconds>> inputs_;
  std::map<double, Seconds> optimizer_, norm_;
  Seconds beside_;
};

}  // namespace gsel::plan
