// plugins/transport/mpi/library.h: the functions of one implementation of MPI, loaded at run time, and its state in
// this process. A build of the plugin uses the types of one mpi.h. Nothing links to an MPI: the symbols of two of them
// in one process collide.
#pragma once

#include <mpi.h>

#include <string>

#include "transport/common/failure.h"

namespace gsel_mpi {

// clang-format off
#define GSEL_MPI_FUNCTIONS(X) \
  X(MPI_Initialized) X(MPI_Finalized) X(MPI_Init_thread) X(MPI_Query_thread) \
  X(MPI_Finalize) X(MPI_Comm_rank) X(MPI_Comm_size) X(MPI_Comm_group) \
  X(MPI_Group_incl) X(MPI_Group_free) X(MPI_Comm_create_group) X(MPI_Comm_free) \
  X(MPI_Comm_get_errhandler) X(MPI_Comm_set_errhandler) X(MPI_Errhandler_free) \
  X(MPI_Comm_get_attr) X(MPI_Isend) X(MPI_Irecv) \
  X(MPI_Test) X(MPI_Cancel) X(MPI_Request_free) X(MPI_Error_string) \
  X(MPI_Iprobe) X(MPI_Get_library_version)
// clang-format on

struct Library {
#define GSEL_MPI_MEMBER(name) decltype(&::name) name = nullptr;
  GSEL_MPI_FUNCTIONS(GSEL_MPI_MEMBER)
#undef GSEL_MPI_MEMBER
  MPI_Comm world{};
  MPI_Datatype byte{};
  MPI_Errhandler errors_return{};
  MPI_Request no_request{};
  std::string path;
  int level = 0;     // MPI_THREAD_*
  std::string note;  // for users, see link_note
};

// Name of this build's implementation, of the plugin, version for describe (40104 for 4.1.4), and library file.
extern const char* const kName;
extern const char* const kPlugin;
extern const int kVersion;
extern const char* const kFile;

// Loads the library. Throws if there is none, if another implementation is in use in this process, if srun has started
// this process without the protocol of this MPI, or after MPI_Finalize.
void find();
// After find(): the library, initialised by the first call unless the program has done that. If this plugin has
// initialised it, it is finalised at exit. Waits for all ranks of the launcher.
const Library& started(const gsel_host_v1* host);
// After MPI_Finalize every other MPI function ends the process.
bool is_finalised(const Library& mpi);
void require_running(const Library& mpi);  // GSEL_ERR_STATE
// Throws unless an MPI function has succeeded. peer: the rank to blame, or -1.
void check(const Library& mpi, int result, const char* call, int32_t peer = -1);

}  // namespace gsel_mpi
