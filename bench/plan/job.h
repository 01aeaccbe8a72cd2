// job.h: ranks of examples/gpt as processes of this program: they run steps, or measure the machine.
#pragma once

#include <string>
#include <vector>

#include "plan/finalist.h"
#include "plan/measure.h"

extern "C" {
#include "model.h"
}

namespace bench {

constexpr int kMostSteps = 64;

struct RankSteps {
  double seconds[kMostSteps];  // of each step, on its rank
  double exposed_s;            // of all of them
  uint64_t peak_bytes;         // of the trainer, without offload memory
  uint64_t bytes_sent;         // in the last step
  char failure[512];
};

// The example, described once.
class Described {
 public:
  Described();
  ~Described();
  const gsel::Model& model() const;

 private:
  gpt_model gpt_{};
};

std::vector<RankSteps> run_steps(const std::string& toml, int32_t ranks, int steps);
// took: seconds on rank 0.
gsel::plan::Measured measure_machine(int32_t ranks, const std::vector<int64_t>& samples, double& took);

// Prints how long finalists take to be priced.
int time_finalists();

}  // namespace bench
