// program/job.cc: see job.h.
#include "program/job.h"

#include <algorithm>

#include "base/text.h"

namespace gsel {

const Program* Job::find(int32_t rank) const {
  const auto found = std::ranges::lower_bound(programs, rank, {}, &Program::rank);
  return found != programs.end() && (*found)->rank == rank ? *found : nullptr;
}

std::vector<Job::Replica> Job::replicas(const Program& program) const {
  if (is_whole()) return {{program.rank, program.microbatches}};
  std::vector<Replica> all;
  const std::vector<int32_t> ranks = mesh().group(program.rank, GSEL_AXIS_DATA);
  for (size_t i = 0; i < ranks.size(); ++i) all.push_back({ranks[i], microbatches[i]});
  return all;
}

Job whole_job(std::span<const Program* const> programs) {
  if (programs.empty()) fail(GSEL_ERR_ARG, "no programs were given");
  const Mesh& mesh = programs.front()->mesh;
  if (static_cast<size_t>(mesh.world_size()) != programs.size())
    fail(GSEL_ERR_PROGRAM, "the mesh has {} and {} given; give one per rank", with_noun(mesh.world_size(), "rank"),
         with_noun(programs.size(), "program") + (programs.size() == 1 ? " was" : " were"));
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    if (static_cast<size_t>(programs[rank]->rank) != rank)
      fail(GSEL_ERR_PROGRAM, "program {} in the list is of rank {}; give them in rank order", rank,
           programs[rank]->rank);
    if (programs[rank]->mesh != mesh)
      fail(GSEL_ERR_PROGRAM, "the programs of ranks 0 and {} are of different meshes", rank);
  }
  Job job{{programs.begin(), programs.end()}, {}, {}};
  for (int32_t rank : mesh.group(0, mesh.sharing_axis())) job.sharing.push_back(programs[rank]);
  for (int32_t rank : mesh.group(0, GSEL_AXIS_DATA)) job.microbatches.push_back(programs[rank]->microbatches);
  return job;
}

Job whole_job(std::span<const Program> programs) {
  std::vector<const Program*> pointers;
  for (const Program& p : programs) pointers.push_back(&p);
  return whole_job(pointers);
}

}  // namespace gsel
