// comm/launch/pmix.h: a process manager that speaks PMIx (mpirun of Open MPI, prterun, srun --mpi=pmix): what it knows
// of the ranks that it has started, and what it keeps for them. Its library is found at run time. Does not know what
// ranks tell each other there.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::pmix {

// Whether the environment says that one has started this process.
bool is_there();

// The others load libpmix, and become a client of the manager until the process ends; GSEL_ERR_CONFIG where that cannot
// be done. Any thread.
int32_t ranks();       // of the job,
int32_t ranks_here();  // and how many are on this host
// A value of this rank's that others may get once all ranks have been at a fence; nothing may be put twice.
void put(const std::string& key, const std::string& value);
void fence(int64_t deadline_ns);
std::string get(int32_t rank, const std::string& key);

}  // namespace gsel::pmix
