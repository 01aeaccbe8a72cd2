// comm/launch/launcher.h: what launchers tell a rank through its environment: its rank, the world size, the number of
// ranks on this host, and where the ranks of several hosts can meet. The only code that knows the variables of
// launchers. Does not know how ranks communicate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace gsel {

struct Convention {
  const char* rank;
  const char* size;
  const char* local[3];    // number of ranks on this host
  const char* job[4];      // variables that are the same on all ranks of a launch
  const char* local_rank;  // rank within this host
};

struct World {
  const Convention* convention = nullptr;
  int32_t rank = 0;
  int32_t size = 1;
};

// nullptr if it is absent or empty.
const char* variable(const char* name);
// The value of a variable that is set; GSEL_ERR_CONFIG if it is no whole number of at least `least`.
int32_t number_of_variable(const char* name, int32_t least);
Error about_variable(const char* name, std::string message);

// Uses the first complete set of variables. An incomplete set or a value that is no number is an error, never a
// communicator of one rank, since half of a launched job must not train half a model. need_job: the ranks find each
// other by the launcher's job variables.
World world_of_environment(bool need_job);

// Why the environment gives no world, for ranks that are to meet others: which of rank and size are missing; nullopt:
// a variable says that the world has one rank.
std::optional<std::string> why_no_world();

// The job variables of a launcher: "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\n"; empty if there are none.
std::string job_variables(const Convention& convention);
// The same for the launcher in use.
std::string job_variables();
// "SLURM_JOB_ID=7, SLURM_STEP_ID=0": the job variables that no other job shares and that are the same on all hosts, of
// the launcher in use; empty if there are none.
std::string job_identity();
// RANK, where gsel run or torchrun sets it.
const char* rank_of_torchrun();

// The variable that shows that the ranks are on several hosts: "LOCAL_WORLD_SIZE=2 of WORLD_SIZE=4 ranks are on this
// host"; nullopt if they are on one host or it is unknown.
std::optional<std::string> why_several_hosts(const World& world);
// Whether a variable shows that all ranks are on this host.
bool is_on_one_host(const World& world);

// The meaning of "env://": a place as in gsel_comm_options.rendezvous; "torchrun://HOST:PORT", the store of torchrun's
// agent; or "pmi://FD" or "pmix://JOB", that of the process manager. source: the variables used. GSEL_ERR_CONFIG if the
// launcher gives no place.
struct LaunchPlace {
  std::string text;
  const char* source;
};
LaunchPlace place_of_launcher(const World& world);

// Name of the transport of the MPI that the launcher starts in this process: mpirun, mpiexec, or srun with the --mpi of
// that MPI. nullptr: there is none. is_asked_for: also where only a process manager with PMIx is known, of which Open
// MPI may not be a client.
const char* mpi_of_launcher(bool is_asked_for);

}  // namespace gsel
