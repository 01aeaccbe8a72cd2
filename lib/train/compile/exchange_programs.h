// train/compile/exchange_programs.h: each rank compiles its own program, and tells the others what they need to know of
// it. Where the programs of a pipeline coordinate are alike but for samples and the sizes of parts, which a key for
// each rank shows, that is: its pipeline, the ranks it shares layers with, and everybody's micro-batches; so that the
// work of a rank does not grow with the number of replicas. Otherwise it is every rank's program.
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

// This rank's program and those it has heard, in ascending ranks, with what depends on the others: where VALIDATE
// stands and how many transfers are under way; verified together. GSEL_ERR_PROGRAM.
std::vector<Program> verified(const HeardPrograms& heard, const Program& own);

}  // namespace gsel
