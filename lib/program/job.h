// program/job.h: the programs that are verified together: those of all ranks, or, on one rank of a large job, only
// those that this rank needs. The latter is possible if the programs of each pipeline coordinate are equal except for
// samples and the sizes of shards; a rank that is left out then does the same as the rank at its pipeline coordinate.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace gsel {

struct Job {
  std::vector<const Program*> programs;               // ascending ranks: all, or those of one pipeline
  std::vector<const Program*> sharing;                // ranks of one sharing axis, by coordinate
  std::vector<std::vector<Microbatch>> microbatches;  // by coordinate on the data axis

  const Mesh& mesh() const { return programs.front()->mesh; }
  bool is_whole() const { return programs.size() == static_cast<size_t>(mesh().world_size()); }
  // One of `programs`, or nullptr.
  const Program* find(int32_t rank) const;

  // A rank that runs one of the programs, with samples of its own.
  struct Replica {
    int32_t rank;
    std::span<const Microbatch> microbatches;
  };
  std::vector<Replica> replicas(const Program& program) const;
};

// Programs of all ranks in order; GSEL_ERR_PROGRAM unless there is one per rank.
Job whole_job(std::span<const Program* const> programs);
Job whole_job(std::span<const Program> programs);

}  // namespace gsel
