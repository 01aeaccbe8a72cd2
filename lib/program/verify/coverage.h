// program/verify/coverage.h: whether every layer sees every sample of the batch once, whichever rank runs it on
// whichever part.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace gsel {

// Forwards of one tensor coordinate; all ranks of it together cover the batch.
class Coverage {
 public:
  explicit Coverage(const Program& outline) : outline_(outline), runs_(outline.layers.size()) {}

  // A rank's micro-batches, which tell how large the batch is; then what it runs.
  void add_rank(const Program& program);
  void add_forward(const Program& program, int32_t layer, int32_t microbatch);

  // GSEL_ERR_PROGRAM naming layer and samples that are seen never or twice.
  void check();

 private:
  struct Run {
    int64_t first, end;
    const Program* program;
    int32_t microbatch;
  };
  [[noreturn]] void refuse_missing(int32_t layer, int64_t first, int64_t end) const;

  const Program& outline_;
  std::vector<const Program*> ranks_;
  std::vector<std::vector<Run>> runs_;  // by layer
  int64_t batch_ = 0;
};

}  // namespace gsel
