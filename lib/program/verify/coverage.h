// program/verify/coverage.h: checks that every layer runs once on every sample of the batch, over all ranks, whether on
// whole micro-batches or on parts.
#pragma once

#include <cstdint>
#include <vector>

#include "program/job.h"

namespace gsel {

// Forwards of one coordinate on the sharing axis; all ranks of it together cover the batch.
class Coverage {
 public:
  explicit Coverage(const Program& outline) : outline_(outline), runs_(outline.layers.size()) {}

  // A rank's micro-batches, which say how large the batch is; then what it runs. A coordinate without a rank of its
  // own here adds nothing, and is not looked at.
  void add_rank(const Program& program, const Job::Replica& replica);
  void add_forward(const Job::Replica& replica, int32_t layer, int32_t microbatch);

  // GSEL_ERR_PROGRAM naming layer and samples that are seen never or twice.
  void check();

 private:
  struct Run {
    int64_t first, end;
    int32_t rank, microbatch;
  };
  [[noreturn]] void refuse_missing(int32_t layer, int64_t first, int64_t end) const;

  const Program& outline_;
  std::vector<std::pair<const Program*, Job::Replica>> ranks_;
  std::vector<std::vector<Run>> runs_;  // by layer
  int64_t batch_ = 0;
};

}  // namespace gsel
