// plugins/transport/mpi/ending.h: the end of an MPI that this plugin has initialised.
#pragma once

#include "library.h"

namespace gsel_mpi {

// MPI_Finalize, also where that of MPICH before 4.2 would not return. Waits for all ranks of the launcher.
void end(const Library& mpi);

}  // namespace gsel_mpi
