// comm/launch/pmix.h: the client of a process manager with PMIx (mpirun of Open MPI, prterun, srun --mpi=pmix): the
// ranks that it has started, and its key-value store. libpmix is loaded at run time. Does not know what ranks store.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::pmix {

// Whether the environment shows that a PMIx manager has started this process.
bool is_there();

// The other functions load libpmix and become a client of the manager until the process ends; GSEL_ERR_CONFIG if that
// fails. Any thread.
int32_t ranks();       // of the job
int32_t ranks_here();  // on this host
// Stores a value that other ranks can get after a fence. A key can be put once.
void put(const std::string& key, const std::string& value);
void fence(int64_t deadline_ns);
std::string get(int32_t rank, const std::string& key);

}  // namespace gsel::pmix
