// train/compile/exchange_programs.h: each rank compiles its own program, and sends the others what they need to know of
// it. A key for each rank shows whether the programs of each pipeline coordinate are alike but for samples and the
// sizes of parts. Where they are, a rank needs the programs of its pipeline and of the ranks it shares layers with, and
// everybody's micro-batches, so that its work does not grow with the number of replicas. Otherwise it needs every
// rank's program.
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

// This rank's program and those it has heard, in ascending ranks, with what depends on the others: where
// POST_VALIDATE stands and how many transfers are under way; verified together. GSEL_ERR_PROGRAM.
std::vector<Program> verified(const HeardPrograms& heard, const Program& own);

}  // namespace gsel
