// program/job.h: the programs that are verified together. These are the programs of all ranks; or, on one rank of a
// large job, only those that this rank needs. Ranks are left out if the programs of each pipeline coordinate are equal
// except for samples and the sizes of parts: a rank that is left out does at each instruction what the rank at its
// pipeline coordinate does.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace gsel {

struct Job {
  std::vector<const Program*> programs;               // ascending ranks: all, or one pipeline
  std::vector<const Program*> sharing;                // ranks that share layers, by their coordinate: of one group
  std::vector<std::vector<Microbatch>> microbatches;  // by coordinate on the data axis

  const Mesh& mesh() const { return programs.front()->mesh; }
  bool is_whole() const { return programs.size() == static_cast<size_t>(mesh().world_size()); }
  // One of `programs`, or nullptr.
  const Program* find(int32_t rank) const;

  // A rank that a program of this job is the program of, but for its samples.
  struct Replica {
    int32_t rank;
    std::span<const Microbatch> microbatches;
  };
  std::vector<Replica> replicas(const Program& program) const;
};

// Of all ranks, in rank order; GSEL_ERR_PROGRAM where it is not one program for each.
Job whole_job(std::span<const Program* const> programs);
Job whole_job(std::span<const Program> programs);

}  // namespace gsel
