// train/compile/exchange_programs.h: each rank compiles its own program and sends the others what they need of it.
// First each rank sends a key of its program. The keys show whether the programs of each pipeline coordinate are equal
// except for samples and the sizes of parts. If so, a rank needs only the programs of its pipeline, those of the ranks
// that it shares layers with, and all micro-batches; its work then does not grow with the number of replicas. Otherwise
// it needs the programs of all ranks.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "program/program.h"

namespace gsel {

// What a rank has heard. Texts are of programs, in ascending ranks; that of its own is empty.
struct HeardPrograms {
  std::vector<std::string> programs;
  std::vector<std::string> sharing;  // of one group, by coordinate; none: they are the first of `programs`
  std::vector<std::vector<Microbatch>> microbatches;  // by coordinate on the data axis; none: all ranks' are heard
};

// A collective. Fails for the communicator's reasons alone.
HeardPrograms exchange_programs(Communicator& comm, const Program& own);

// Puts into compiled programs what depends on the others, where POST_VALIDATE stands and how many transfers are under
// way, and verifies them together. sharing, microbatches: empty where the programs are those of all ranks, else as
// Job has them. GSEL_ERR_PROGRAM.
void verify_together(std::vector<Program>& programs, const std::vector<Program>& sharing,
                     const std::vector<std::vector<Microbatch>>& microbatches);

// This rank's program and those it has heard, in ascending ranks, verified together. GSEL_ERR_PROGRAM.
std::vector<Program> verified(const HeardPrograms& heard, const Program& own);

}  // namespace gsel
