// comm/launch/launcher_mpi.cc: which MPI the launcher can start in this process; see launcher.h. Open MPI finds its
// ranks by PMIx, MPICH by PMI-1 over a socket that its process inherits.
#include <sys/socket.h>

#include "comm/launch/launcher.h"
#include "comm/launch/pmi.h"
#include "comm/launch/pmix.h"

namespace gsel {
namespace {

constexpr const char *kTransportOfOpenMpi = "mpi_openmpi", *kTransportOfMpich = "mpi_mpich";

// Whether this process is the one that srun has started. torchrun and gsel run start several under one task, which
// inherit its variables, so that two of them are the same rank of MPI.
bool is_its_own_task(const char* size) {
  if (variable("TORCHELASTIC_RUN_ID") || variable("GSEL_JOB")) return false;
  return !variable("WORLD_SIZE") || !variable(size) ||
         number_of_variable("WORLD_SIZE", 1) == number_of_variable(size, 1);
}

// A launcher between may have closed the descriptor.
bool has_pmi_socket() {
  if (!variable("PMI_RANK") || !variable("PMI_FD")) return false;
  int family = 0;
  socklen_t length = sizeof family;
  return getsockopt(number_of_variable("PMI_FD", 0), SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 && family == AF_UNIX;
}

}  // namespace

const char* mpi_of_launcher(bool is_asked_for) {
  if (variable("OMPI_COMM_WORLD_SIZE")) return kTransportOfOpenMpi;
  if (variable("MPI_LOCALNRANKS")) return kTransportOfMpich;
  const bool is_of_slurm = variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS");
  if (pmix::is_there() && (is_asked_for || is_of_slurm) && is_its_own_task("SLURM_STEP_NUM_TASKS"))
    return kTransportOfOpenMpi;
  return has_pmi_socket() && !pmi::is_taken_from_mpi() && is_its_own_task("PMI_SIZE") ? kTransportOfMpich : nullptr;
}

}  // namespace gsel
