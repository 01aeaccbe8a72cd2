// program/verify/coverage.h: checks that every layer runs once on every sample of the batch over all ranks, in whole
// micro-batches or parts.
#pragma once

#include <cstdint>
#include <vector>

#include "program/job.h"

namespace gsel {

// The forwards of one coordinate on the sharing axis; its ranks together must cover the batch.
class Coverage {
 public:
  explicit Coverage(const Program& outline) : outline_(outline), forwards_(outline.layers.size()) {}

  // Adds a program and its replicas; the micro-batches of the replicas determine the size of the batch. Then add its
  // forwards. A coordinate without programs is not checked.
  void add_program(const Program& program, std::vector<Job::Replica> replicas);
  void add_forward(int32_t layer, int32_t microbatch);

  // GSEL_ERR_PROGRAM naming a layer and samples that it runs on never or twice.
  void check();

 private:
  struct Member {
    const Program* program;
    std::vector<Job::Replica> replicas;
  };
  struct Forward {
    int32_t member, microbatch;
    auto operator<=>(const Forward&) const = default;
  };
  struct Run {
    int64_t first, end;
    int32_t rank, microbatch;
  };
  std::vector<Run> runs_of(const std::vector<Forward>& forwards) const;
  void check_layer(int32_t layer) const;
  [[noreturn]] void refuse_missing(int32_t layer, int64_t first, int64_t end) const;

  const Program& outline_;
  std::vector<Member> members_;
  std::vector<std::vector<Forward>> forwards_;  // by layer
  int64_t batch_ = 0;
};

}  // namespace gsel
