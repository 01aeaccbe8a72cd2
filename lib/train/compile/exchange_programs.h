// train/compile/exchange_programs.h: each rank compiles its own program and sends it to the ranks that need it. First
// all ranks exchange keys of their programs. If the programs of each pipeline coordinate are equal except for samples
// and the sizes of shards, a rank needs only the programs of its pipeline and of its sharing axis, and all
// micro-batches; its work then does not grow with the number of replicas. Otherwise it needs the programs of all ranks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "program/program.h"

namespace gsel {

// What a rank received. Programs are texts, in ascending ranks; this rank's own text is empty.
struct ReceivedPrograms {
  std::vector<std::string> programs;
  std::vector<std::string> sharing;  // of one group, by coordinate; empty: they come first in `programs`
  std::vector<std::vector<Microbatch>> microbatches;  // by data coordinate; empty: `programs` has all ranks
};

// A collective. Fails only if the communicator does.
ReceivedPrograms exchange_programs(Communicator& comm, const Program& own);

// Sets in compiled programs what depends on other ranks (the position of POST_VALIDATE, the number of concurrent
// transfers), and verifies them together. sharing, microbatches: empty where the programs are those of all ranks, else
// as in Job. GSEL_ERR_PROGRAM.
void verify_together(std::vector<Program>& programs, const std::vector<Program>& sharing,
                     const std::vector<std::vector<Microbatch>>& microbatches);

// This rank's program and those received, in ascending ranks, verified together. on_device: with times of launching.
// GSEL_ERR_PROGRAM; GSEL_ERR_UNSUPPORTED for a job without an order of launching.
std::vector<Program> verified(const ReceivedPrograms& received, const Program& own, bool on_device);

// ---- instructions that no strategy inserts -------------------------------------------------------------------------

// Their place is known only after all passes, or from the programs of all ranks.

// Sums of gradients: over the sharing axis, for whole parameters of layers whose values are sharded; over the pipeline,
// for parameters that several pipeline ranks hold. For each bucket that is stepped here and needs it: an
// ALLREDUCE_PARTIAL, then an ALLREDUCE_TIED, in the same order on all their ranks, after the reductions over the data
// axis and before any instruction that reads the gradients. WAITs that come later are moved before them.
void insert_tied_reductions(Program& program);

// Places POST_VALIDATE. programs: of a job, in ascending ranks. Validation runs at the last point that no message
// crosses, to give the number time to arrive. A value that skips stages is sent after validation instead, because its
// reader runs later.
void place_post_validations(std::span<Program> programs);

}  // namespace gsel
