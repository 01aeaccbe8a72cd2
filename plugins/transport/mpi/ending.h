// plugins/transport/mpi/ending.h: the end of an MPI that this plugin has initialised.
#pragma once

#include "library.h"

namespace gsel_mpi {

// Waits for all ranks of the launcher, and ends MPI: by MPI_Finalize but for MPICH before 4.2, where that might not
// return.
void end(const Library& mpi);

}  // namespace gsel_mpi
