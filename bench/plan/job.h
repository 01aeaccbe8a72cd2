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

// Matrix products in a second of one process, and of each of two at once, a core for each: the processors of a virtual
// machine are not always as fast.
struct Speed {
  double one = 0, each_of_two = 0;
  bool is_like(const Speed& other) const;  // within a few percent
};
Speed probe_speed();

// While it lives, a process on each core keeps others off it: one of the idle class on a core that ranks run on, which
// gets every instant that they leave; a usual one on the others. The caller's group of processes needs a high priority
// of its own (/proc/PID/autogroup), else others are not kept off.
class Cores {
 public:
  explicit Cores(int32_t ranks);
  ~Cores();
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;

 private:
  std::vector<int32_t> keepers_;
};

// Prints how long finalists take to be priced.
int time_finalists();

}  // namespace bench
